"""What this API server keeps of a published device.

An API server whose feature gate is off takes a ResourceSlice and drops fields of it in silence, and its OpenAPI lists
them all the same. So one is created with `dryRun=All`, which stores nothing, and the answer is compared.

Source: KEP-5007, "Version skew"; seen on 1.34 with default gates.
"""

from drawbar.driver.api import bindings, claims, meta, slices
from drawbar.driver.controller import names
from drawbar.driver.kube import client, kinds

_SELECTOR = claims.NodeSelector(
    node_selector_terms=(
        claims.NodeSelectorTerm(
            match_expressions=(
                claims.FieldRequirement(key="kubernetes.io/hostname", operator="In", values=("probe",)),
            )
        ),
    )
)


async def dropped_fields(api: client.Client, driver: str) -> tuple[str, ...]:
    """The fields of a device that this API server does not keep; empty when it keeps all.

    Raises:
        kube.errors.KubeError: the API server refuses the probe, or cannot be reached.
    """
    wanted = slices.Device(
        name="probe",
        attributes={"class": slices.Attribute(string="probe")},
        binds_to_node=True,
        binding_conditions=bindings.binding_conditions(driver),
        binding_failure_conditions=bindings.failure_conditions(driver),
        taints=(slices.Taint(key=f"{driver}/probe", effect="NoSchedule"),),
    )
    pool = slices.Pool(name="probe", generation=1, resource_slice_count=1)
    body = slices.ResourceSlice(
        metadata=meta.ObjectMeta(name=names.resource_slice(driver, "probe/drawbar")),
        spec=slices.SliceSpec(driver=driver, pool=pool, node_selector=_SELECTOR, devices=(wanted,)),
    )
    answer = await api.create(kinds.SLICE, slices.document(body), into=slices.ResourceSlice, dry_run=True)
    return missing(wanted, answer.spec.devices[0]) if answer.spec.devices else ("devices",)


def missing(wanted: slices.Device, stored: slices.Device) -> tuple[str, ...]:
    """The fields that were sent and did not come back."""
    fields = {
        "bindsToNode": (wanted.binds_to_node, stored.binds_to_node),
        "bindingConditions": (wanted.binding_conditions, stored.binding_conditions),
        "bindingFailureConditions": (wanted.binding_failure_conditions, stored.binding_failure_conditions),
        "taints": (wanted.taints, stored.taints),
    }
    return tuple(name for name, (sent, kept) in fields.items() if sent and not kept)
