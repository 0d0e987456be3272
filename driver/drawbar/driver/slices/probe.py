"""What this API server keeps of a published device.

An API server whose feature gate is off takes a ResourceSlice and drops fields of it in silence, and its OpenAPI lists
them all the same. So one is created with `dryRun=All`, which stores nothing, and the answer is compared.

One that does not know the effect None refuses it, and is tried again without.

Source: KEP-5007, "Version skew"; seen on 1.34 with default gates; the effect None came with 1.35.
"""

from dataclasses import dataclass

from drawbar.driver.api import bindings, claims, meta, slices
from drawbar.driver.kube import client, kinds
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.slices import encoding

_SELECTOR = claims.NodeSelector(
    node_selector_terms=(
        claims.NodeSelectorTerm(
            match_expressions=(
                claims.FieldRequirement(key="kubernetes.io/hostname", operator="In", values=("probe",)),
            )
        ),
    )
)


REQUIRED = frozenset({"bindsToNode", "bindingConditions", "bindingFailureConditions"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The outcome.

    Attributes:
        dropped: the fields of a device that this API server does not keep; empty when it keeps all.
        form: where it takes taints.
        details: what a taint may say of itself there, of `encoding.DETAILS`.
        informs: whether it takes taints of effect None.
    """

    dropped: tuple[str, ...]
    form: encoding.Encoding
    details: frozenset[str] = frozenset()
    informs: bool = True

    @property
    def conditions(self) -> bool:
        """Whether binding conditions are kept: without them nothing may be offered that is not attached."""
        return not REQUIRED & set(self.dropped)


async def kept(api: client.Client, driver: str) -> Kept:
    """Tries with one device and, where its taint is dropped, with a slice of taints.

    Raises:
        kube.errors.KubeError: the API server refuses the probe, or cannot be reached.
    """
    try:
        return await _kept(api, driver, informs=True)
    except kube_errors.Invalid:
        return await _kept(api, driver, informs=False)


async def _kept(api: client.Client, driver: str, *, informs: bool) -> Kept:
    taint = slices.Taint(
        key=f"{driver}/probe",
        effect="NoSchedule",
        description="A probe.",
        data={"probe": "yes"},
        evictions_per_second=1,
    )
    sent = (taint, slices.Taint(key=f"{driver}/probe-none", effect="None")) if informs else (taint,)
    wanted = slices.Device(
        name="probe",
        attributes={"class": slices.Attribute(string="probe")},
        binds_to_node=True,
        binding_conditions=bindings.binding_conditions(driver),
        binding_failure_conditions=bindings.failure_conditions(driver),
        taints=sent,
    )
    stored = await _try(api, _spec(driver, devices=(wanted,)))
    dropped = missing(wanted, stored.devices[0]) if stored.devices else ("devices",)
    if "taints" in dropped:
        entries = tuple(slices.SliceTaint(device="probe", taint=one) for one in sent)
        stored = await _try(api, _spec(driver, taints=entries))
        if stored.taints:
            rest = tuple(field for field in dropped if field != "taints")
            details = encoding.kept_details(taint, stored.taints[0].taint)
            return Kept(dropped=rest, form=encoding.Encoding.TAINT_SLICE, details=details, informs=informs)
        return Kept(dropped=dropped, form=encoding.Encoding.WITHDRAWN, informs=informs)
    details = (
        encoding.kept_details(taint, stored.devices[0].taints[0]) if "devices" not in dropped else frozenset()
    )
    return Kept(dropped=dropped, form=encoding.Encoding.PER_DEVICE, details=details, informs=informs)


def _spec(
    driver: str, *, devices: tuple[slices.Device, ...] = (), taints: tuple[slices.SliceTaint, ...] = ()
) -> slices.SliceSpec:
    pool = slices.Pool(name="probe", generation=1, resource_slice_count=1)
    return slices.SliceSpec(driver=driver, pool=pool, node_selector=_SELECTOR, devices=devices, taints=taints)


async def _try(api: client.Client, spec: slices.SliceSpec) -> slices.SliceSpec:
    metadata = meta.ObjectMeta(name=f"{spec.driver}-probe")
    body = slices.document(slices.ResourceSlice(metadata=metadata, spec=spec))
    answer = await api.create(kinds.SLICE, body, into=slices.ResourceSlice, dry_run=True)
    return answer.spec


def missing(wanted: slices.Device, stored: slices.Device) -> tuple[str, ...]:
    """The fields that were sent and did not come back."""
    fields = {
        "bindsToNode": (wanted.binds_to_node, stored.binds_to_node),
        "bindingConditions": (wanted.binding_conditions, stored.binding_conditions),
        "bindingFailureConditions": (wanted.binding_failure_conditions, stored.binding_failure_conditions),
        "taints": (wanted.taints, stored.taints),
    }
    return tuple(name for name, (sent, kept) in fields.items() if sent and not kept)
