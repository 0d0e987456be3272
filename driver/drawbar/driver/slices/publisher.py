"""The writer of slices for both daemons, with a probe for the fields that the API server keeps.

An API server whose feature gate is off accepts a ResourceSlice and drops fields of it silently, although its OpenAPI lists
them. So the answer of each write is compared with the request, and `probe` creates slices with `dryRun=All`, which stores
nothing. An API server that does not know the effect None refuses it, and is probed again without.

On a cluster with classic dynamic resource allocation no device may be offered by slices, since its scheduler does not know
binding conditions. The devices and their taints are computed all the same and kept in memory, from where the controller of
classic claims takes them, so taints have the same causes and the same end everywhere. After a restart the probations of
failures begin again there.

Source: KEP-5007, "Version skew"; seen on 1.34 with default gates; the effect None came with 1.35.
"""

import itertools
import logging
from typing import assert_never

import msgspec

from drawbar.driver.api import bindings, claims, meta, slices
from drawbar.driver.kube import client, kinds, mirror
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.slices import encoding, pool_writes

log = logging.getLogger(__name__)

_SELECTOR = claims.NodeSelector(
    node_selector_terms=(
        claims.NodeSelectorTerm(
            match_expressions=(
                claims.FieldRequirement(key="kubernetes.io/hostname", operator="In", values=("probe",)),
            )
        ),
    )
)


class Store:
    """The API server. Each method raises `kube.errors.KubeError`."""

    def __init__(self, api: client.Client) -> None:
        self._api = api

    async def find_kept_fields(self, driver: str) -> encoding.Kept:
        """Return the kept fields of a slice."""
        return await probe(self._api, driver)

    async def create(self, desired: slices.ResourceSlice) -> slices.ResourceSlice:
        """Store a new slice; return it as it is stored."""
        return await self._api.create(kinds.SLICE, slices.document(desired), into=slices.ResourceSlice)

    async def replace(self, desired: slices.ResourceSlice) -> slices.ResourceSlice:
        """Replace a slice if its version is still that of `desired`; return the stored slice."""
        return await self._api.replace(
            kinds.SLICE, desired.metadata.name, slices.document(desired), into=slices.ResourceSlice
        )

    async def delete(self, stored: slices.ResourceSlice) -> None:
        """Remove a slice if it is still the version in `stored`; one that is gone is success."""
        metadata = stored.metadata
        await self._api.delete(
            kinds.SLICE, metadata.name, uid=metadata.uid, resource_version=metadata.resource_version
        )


class Memory(Store):
    """A store in memory, which keeps every field. The publisher is the only writer, so no view is ever stale."""

    def __init__(self) -> None:
        self._versions = itertools.count(1)

    async def find_kept_fields(self, driver: str) -> encoding.Kept:
        """Return that everything is kept."""
        del driver
        return encoding.Kept(
            dropped=(), form=encoding.Encoding.PER_DEVICE, details=encoding.DETAILS, shares=True
        )

    async def create(self, desired: slices.ResourceSlice) -> slices.ResourceSlice:
        """Give the slice a uid of its own and a version."""
        return self._build_stored(desired, uid=f"memory-{next(self._versions)}")

    async def replace(self, desired: slices.ResourceSlice) -> slices.ResourceSlice:
        """Give the slice a new version."""
        return self._build_stored(desired, uid=desired.metadata.uid)

    async def delete(self, stored: slices.ResourceSlice) -> None:
        """Do nothing: the publisher's own copy is the only one."""

    def _build_stored(self, desired: slices.ResourceSlice, *, uid: str) -> slices.ResourceSlice:
        metadata = msgspec.structs.replace(
            desired.metadata, uid=uid, resource_version=str(next(self._versions))
        )
        return msgspec.structs.replace(desired, metadata=metadata)


class Publisher:
    """The only writer of slices; it updates the mirror of the published slices with its own writes."""

    def __init__(self, store: Store, published: mirror.Mirror[slices.ResourceSlice]) -> None:
        self._store = store
        self._published = published

    async def write(self, action: pool_writes.Write) -> slices.ResourceSlice | None:
        """Carry out one write; return the slice as it is stored, or None for one that was deleted.

        Raises:
            kube.errors.KubeError: the write failed.
        """
        wanted = action.slice
        match action:
            case pool_writes.Create():
                stored = await self._store.create(wanted)
            case pool_writes.Replace():
                stored = await self._store.replace(wanted)
            case pool_writes.Delete():
                await self._store.delete(wanted)
                self._published.unlearn(wanted)
                log.info("pool withdrawn", extra={"pool": wanted.spec.pool.name})
                return None
            case _:
                assert_never(action)
        self._published.learn(stored)
        spec = wanted.spec
        extra = {"pool": spec.pool.name, "devices": len(spec.devices), "taints": len(spec.taints)}
        log.info("pool published", extra=extra)
        return stored


async def probe(api: client.Client, driver: str) -> encoding.Kept:
    """Return the fields of a fabric's device that the API server keeps: by one device and, if its taint is dropped, a slice of taints.

    Raises:
        kube.errors.KubeError: the API server refuses the probe, or cannot be reached.
    """
    try:
        return await _probe_kept(api, driver, informs=True)
    except kube_errors.Invalid:
        return await _probe_kept(api, driver, informs=False)


async def probe_node(
    api: client.Client, driver: str, node_name: str, *, shared: bool, held_back: bool
) -> frozenset[str]:
    """Return the fields of a node's own device that the API server drops.

    Args:
        api: with the rights of the node daemon.
        driver: the DRA driver's name.
        node_name: the node.
        shared: whether to try a device that many claims share.
        held_back: whether to try a device with binding conditions.

    Raises:
        kube.errors.KubeError: the API server refuses the probe, or cannot be reached.
    """
    device = slices.Device(
        name="probe",
        taints=(slices.Taint(key=f"{driver}/probe", effect=encoding.NO_SCHEDULE),),
        allow_multiple_allocations=shared or None,
        binds_to_node=held_back or None,
        binding_conditions=bindings.binding_conditions(driver) if held_back else (),
        binding_failure_conditions=bindings.failure_conditions(driver) if held_back else (),
    )
    spec = _spec(driver, pool=f"{node_name}/probe", node_name=node_name, devices=(device,))
    return encoding.find_lost_fields(spec, await _dry_run(api, spec))


_SHARED = slices.Device(
    name="probe-shared",
    capacity={
        "memory": slices.Capacity(
            value="2Gi",
            request_policy=slices.RequestPolicy(
                default="1Gi", valid_range=slices.ValidRange(min="1Gi", step="1Gi")
            ),
        )
    },
    binds_to_node=True,
    allow_multiple_allocations=True,
)


async def _probe_kept(api: client.Client, driver: str, *, informs: bool) -> encoding.Kept:
    taint = slices.Taint(
        key=f"{driver}/probe",
        effect=encoding.NO_SCHEDULE,
        description="A probe.",
        data={"probe": "yes"},
        evictions_per_second=1,
    )
    inform = slices.Taint(key=f"{driver}/probe-none", effect=encoding.NO_EFFECT)
    sent = (taint, inform) if informs else (taint,)
    wanted = slices.Device(
        name="probe",
        attributes={"class": slices.Attribute(string="probe")},
        binds_to_node=True,
        binding_conditions=bindings.binding_conditions(driver),
        binding_failure_conditions=bindings.failure_conditions(driver),
        taints=sent,
    )
    stored = await _dry_run(api, _spec(driver, node_selector=_SELECTOR, devices=(wanted, _SHARED)))
    keeps_shares = _SHARED in stored.devices
    dropped = encoding.find_missing(wanted, stored.devices[0]) if stored.devices else ("devices",)
    form, kept = encoding.Encoding.PER_DEVICE, [taint for device in stored.devices for taint in device.taints]
    if "taints" in dropped:
        entries = tuple(slices.SliceTaint(device="probe", taint=taint) for taint in sent)
        stored = await _dry_run(api, _spec(driver, node_selector=_SELECTOR, taints=entries))
        form, kept = encoding.Encoding.WITHDRAWN, [entry.taint for entry in stored.taints]
        if kept:
            form = encoding.Encoding.TAINT_SLICE
            dropped = tuple(field for field in dropped if field != "taints")
    details = encoding.find_kept_details(taint, kept[0]) if kept else frozenset[str]()
    return encoding.Kept(dropped=dropped, form=form, details=details, informs=informs, shares=keeps_shares)


def _spec(
    driver: str,
    *,
    pool: str = "probe",
    node_name: str | None = None,
    node_selector: claims.NodeSelector | None = None,
    devices: tuple[slices.Device, ...] = (),
    taints: tuple[slices.SliceTaint, ...] = (),
) -> slices.SliceSpec:
    return slices.SliceSpec(
        driver=driver,
        pool=slices.Pool(name=pool, generation=1, resource_slice_count=1),
        node_name=node_name,
        node_selector=node_selector,
        devices=devices,
        taints=taints,
    )


async def _dry_run(api: client.Client, spec: slices.SliceSpec) -> slices.SliceSpec:
    body = slices.document(
        slices.ResourceSlice(metadata=meta.ObjectMeta(name=f"{spec.driver}-probe"), spec=spec)
    )
    answer = await api.create(kinds.SLICE, body, into=slices.ResourceSlice, dry_run=True)
    return answer.spec
