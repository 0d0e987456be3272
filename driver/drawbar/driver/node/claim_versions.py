"""Claims of all served API versions, read as `v1` claims for the rest of the node daemon.

The daemon asks for the served versions at the start, and asks again while `v1` is missing. A cluster may be upgraded under a
running daemon; once it serves `v1`, the work that needs it begins. A cluster may serve several versions, and the newest known
one comes first. If one version does not have a claim, the others are asked, and then the versions served by that time. A
claim counts as gone only if no version has it.

Up to `v1alpha3`, a controller allocates devices and writes a handle into the claim. The kubelets of 1.27 to 1.30 pass that
handle with each call, and only the handle names the devices. A request without a device gets the node's null device, which
several claims share.
"""

import asyncio
import logging
import random

import msgspec

from drawbar.driver import backoff
from drawbar.driver.api import claims, handles, meta, nodepools
from drawbar.driver.catalogue import reasons
from drawbar.driver.kube import client, discovery, kinds
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.node import errors

log = logging.getLogger(__name__)

V1ALPHA2 = "v1alpha2"
V1ALPHA3 = "v1alpha3"
# The versions of Kubernetes 1.34 and later, 1.33, 1.32, 1.31, and 1.27 to 1.30.
KNOWN = ("v1", "v1beta2", "v1beta1", V1ALPHA3, V1ALPHA2)
# The upgrade of a control plane takes minutes, and pods arrive on the node even later.
FOLLOW_SECONDS = 60.0
RETRY_FIRST_SECONDS = 0.2
RETRY_MAX_SECONDS = 30.0
_CLAIMS = tuple(msgspec.structs.replace(kinds.CLAIM, version=version) for version in KNOWN)


class Served:
    """The served versions of claims. Before `known`, and if the daemon may not ask, `v1` is assumed.

    Attributes:
        claims: the kinds of claims, the newest first.
        known: set once the API server has answered, or has refused to.
        modern: set once `v1` is served, with its ResourceSlices and the conditions in the status of claims.
    """

    def __init__(self, api: client.Client, *, follow_seconds: float = FOLLOW_SECONDS) -> None:
        self._api = api
        self._follow_seconds = follow_seconds
        self.claims: tuple[kinds.Kind, ...] = (kinds.CLAIM,)
        self.known = asyncio.Event()
        self.modern = asyncio.Event()

    async def run(self) -> None:
        """Ask for the served versions until `v1` is one of them."""
        while True:
            noted = backoff.warning_once(
                log, "cannot ask in which versions claims are served, trying again: %s"
            )
            loop = backoff.build_retrying(
                kube_errors.KubeError,
                first_seconds=RETRY_FIRST_SECONDS,
                max_seconds=RETRY_MAX_SECONDS,
                noted=noted,
            )
            await loop(self.ask)
            if self.modern.is_set():
                return
            await asyncio.sleep(self._follow_seconds * random.uniform(0.8, 1.2))  # noqa: S311 - spreads requests

    async def ask(self) -> None:
        """Ask for the served versions once.

        Raises:
            kube_errors.KubeError: the API server did not answer.
        """
        try:
            # In later releases, `v1alpha3` contains only DeviceTaintRules.
            served = await discovery.resources(self._api, kinds.CLAIM.group)
            versions = tuple(kind for kind in _CLAIMS if kind.plural in served.get(kind.version, ()))
        except kube_errors.Denied as error:
            log.warning("asking which versions are served is forbidden; taking it for v1: %s", error)
            versions = (kinds.CLAIM,)
        self._report(versions)
        self.claims = versions
        if kinds.CLAIM in versions:
            self.modern.set()
        self.known.set()

    def _report(self, versions: tuple[kinds.Kind, ...]) -> None:
        if self.known.is_set() and versions == self.claims:
            return
        extra = {"served": ",".join(kind.version for kind in versions) or "none"}
        if not versions:
            log.error(
                "this cluster serves claims in no version that is known here; nothing can be prepared",
                extra=extra,
            )
        elif kinds.CLAIM not in versions:
            log.warning(
                "this cluster has no resource.k8s.io/v1: the node's own devices are not published, and claims get an Event "
                "nothing of their devices; the attachments say it all",
                extra=extra,
            )
        elif self.known.is_set():
            log.info("this cluster has resource.k8s.io/v1 now; everything is published", extra=extra)


class _Named(meta.Struct, frozen=True):
    metadata: meta.ObjectMeta


class Reader:
    """The reader of claims, as the types of `api.claims`."""

    def __init__(self, api: client.Client, *, driver: str, node_name: str, versions: Served) -> None:
        self._api = api
        self._driver = driver
        self._node_name = node_name
        self._versions = versions

    @property
    def modern(self) -> bool:
        """Return whether the scheduler allocates, so that attachments may show all devices of a claim."""
        return self._versions.modern.is_set()

    async def read(self, name: str, namespace: str) -> claims.ResourceClaim:
        """Return one claim.

        Raises:
            kube_errors.NotFound: no served version has the claim.
            kube_errors.KubeError: the API server did not answer, or serves no known version.
            errors.PrepareError: the handle of its allocation cannot be used.
        """
        asked: tuple[kinds.Kind, ...] = ()
        missing: kube_errors.NotFound | None = None
        while kinds_left := [kind for kind in await self._kinds(asked) if kind not in asked]:
            for kind in kinds_left:
                try:
                    return await self._read(kind, name, namespace)
                except kube_errors.NotFound as error:
                    missing = missing or error
            asked = (*asked, *kinds_left)
        if missing is None:
            raise kube_errors.Unreachable(
                f"claim {namespace}/{name} cannot be read: this cluster serves claims in no version that is known here"
            )
        raise missing

    async def all_names(self) -> tuple[meta.ObjectMeta, ...]:
        """Return the metadata of every claim of the cluster.

        Raises:
            kube_errors.KubeError: the API server did not answer.
        """
        by_uid: dict[str, meta.ObjectMeta] = {}
        for kind in await self._kinds(()):
            listing = await self._api.list_all(kind, into=_Named)
            by_uid.update({claim.metadata.uid: claim.metadata for claim in listing.items})
            by_uid.update({left.metadata.uid: left.metadata for left in listing.unreadable})
        return tuple(by_uid.values())

    async def _kinds(self, asked: tuple[kinds.Kind, ...]) -> tuple[kinds.Kind, ...]:
        """Return the versions to ask. If some were `asked`, find out whether others are served by now."""
        versions = self._versions
        if not versions.known.is_set() or (asked and not versions.modern.is_set()):
            await versions.ask()
        return versions.claims

    async def _read(self, kind: kinds.Kind, name: str, namespace: str) -> claims.ResourceClaim:
        if kind.version != V1ALPHA2:
            claim = await self._api.read(kind, name, namespace=namespace, into=claims.PodClaim)
            return _from_v1alpha3(claim, self._node_name) if kind.version == V1ALPHA3 else claim
        # Few clusters need these types, which take memory.
        from drawbar.driver.api import classic_v1alpha2

        stored = await self._api.read(kind, name, namespace=namespace, into=classic_v1alpha2.ResourceClaim)
        allocation = stored.status.allocation
        if allocation is None:
            return claims.ResourceClaim(metadata=stored.metadata)
        # A handle without a driver belongs to the driver that allocated the claim.
        by_driver = {
            handle.driver_name or stored.status.driver_name: handle.data
            for handle in allocation.resource_handles
        }
        handle = decode(by_driver.get(self._driver, ""), f"claim {namespace}/{name}")
        return from_handle(stored.metadata, handle, self._driver, self._node_name)


def decode(data: str, where: str) -> handles.Handle:
    """Return the handle that a controller wrote.

    Args:
        data: the text of the handle.
        where: the claim, for messages.

    Raises:
        errors.PrepareError: the text is no handle.
    """
    size = len(data.encode())
    if size > handles.DATA_BYTES:
        raise _unusable(where, f"it has {size} bytes, and an allocation has room for {handles.DATA_BYTES}")
    if not data:
        raise _unusable(where, "it is empty")
    try:
        return handles.decode(data)
    except handles.InvalidHandle as error:
        raise _unusable(where, str(error)) from error


def for_node(handle: handles.Handle, where: str, node_name: str) -> handles.Handle:
    """Check that the handle is for this node or for any node; return it.

    Raises:
        errors.PrepareError: the handle is for another node.
    """
    if handle.node and handle.node != node_name:
        raise _unusable(where, f"it is for node {handle.node}, and this is {node_name}")
    return handle


def from_handle(
    metadata: meta.ObjectMeta, handle: handles.Handle, driver: str, node_name: str
) -> claims.ResourceClaim:
    """Return a claim with the allocation of that handle: its devices, and null devices for the other requests."""
    allocated = [(device.request, device.pool, device.device, None) for device in handle.devices]
    # Claims share the null device.
    without = [
        (*null_device, null_device[0]) for null_device in nodepools.null_devices(handle.without, node_name)
    ]
    results = tuple(
        claims.AllocationResult(request=request, driver=driver, pool=pool, device=device, share_id=share)
        for request, pool, device, share in (*allocated, *without)
    )
    allocation = claims.Allocation(
        devices=claims.DeviceAllocation(results=results), allocation_timestamp=handle.allocated_at or None
    )
    return claims.ResourceClaim(metadata=metadata, status=claims.ClaimStatus(allocation=allocation))


def _from_v1alpha3(claim: claims.ResourceClaim, node_name: str) -> claims.ResourceClaim:
    """Return the claim without the handle in its configuration, and with shares of the null device.

    The handle repeats the claim's results, and is not a parameter.
    """
    allocation = claim.status.allocation
    if allocation is None:
        return claim
    devices = claims.DeviceAllocation(
        results=tuple(
            msgspec.structs.replace(result, share_id=result.share_id or result.request)
            if result.device == nodepools.NULL_DEVICE and nodepools.is_pool(result.pool, node_name)
            else result
            for result in allocation.devices.results
        ),
        config=tuple(
            entry
            for entry in allocation.devices.config
            if entry.opaque is None or not handles.is_handle(entry.opaque.parameters)
        ),
    )
    allocation = msgspec.structs.replace(allocation, devices=devices)
    status = msgspec.structs.replace(claim.status, allocation=allocation)
    return msgspec.structs.replace(claim, status=status)


def _unusable(where: str, why: str) -> errors.PrepareError:
    return errors.PrepareError(
        f"the resource handle of {where} cannot be used: {why}; delete the pod, and let the claim be allocated again by "
        f"a controller of this driver",
        reason=reasons.RESOURCE_HANDLE_WRONG,
    )
