"""Reads of the cluster what a status needs, and no more: the whole, or what belongs to one fabric, node, claim or pod."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from drawbar.driver import errors
from drawbar.driver.api import attachments, claims, core, fabrics, maintenances, slices
from drawbar.driver.cli.doctor.findings import NAMED_MAX, Unread
from drawbar.driver.cli.doctor.reading import Reader
from drawbar.driver.cli.status import observed
from drawbar.driver.controller import names
from drawbar.driver.kube import client, exclusions, kinds

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is asked for.

    Attributes:
        kind: `fabric`, `node`, `claim`, `pod`, or empty for the whole cluster.
        name: of the object.
        namespace: of a claim or pod.
    """

    kind: str = ""
    name: str = ""
    namespace: str = ""


class Missing(errors.DrawbarError):
    """There is no object of the name that was given."""


@dataclass(slots=True, kw_only=True)
class _Readings:
    """Reads, of which those that fail are kept as sentences, as are the objects that cannot be read.

    Attributes:
        failed: how many reads failed as a whole.
    """

    reader: Reader
    unread: list[str] = field(default_factory=list)
    failed: int = 0

    async def list_all(
        self, kind: kinds.Kind, into: type[T], *, labels: str = "", fields: str = ""
    ) -> tuple[T, ...]:
        """Return all objects that match; none where they cannot be read."""

        async def ask() -> tuple[T, ...]:
            listing = await self.reader.api.list_all(kind, into=into, labels=labels, fields=fields)
            self.unread += left_out(listing.unreadable)
            return listing.items

        result = await self.reader.attempt(kind.plural, f"list {kind.plural}", ask)
        return () if self._is_unread(result) else result  # type: ignore[return-value]

    async def find(
        self, kind: kinds.Kind, name: str, into: type[T], namespace: str | None = None
    ) -> T | None:
        """Return one object; None where there is none, or it cannot be read."""
        result = await self.reader.find(kind, name, into=into, namespace=namespace)
        return None if self._is_unread(result) else result  # type: ignore[return-value]

    def _is_unread(self, result: object) -> bool:
        if not isinstance(result, Unread):
            return False
        self.unread.append(sentence(result))
        self.failed += 1
        return True


def left_out(unreadable: Collection[exclusions.Unreadable]) -> list[str]:
    """Return a sentence for each of the first `NAMED_MAX` objects that cannot be read, and one for the others."""
    sentences = [str(left) for left in itertools.islice(unreadable, NAMED_MAX)]
    more = len(unreadable) - len(sentences)
    return [*sentences, f"{more} more objects cannot be read"] if more else sentences


def sentence(unread: Unread) -> str:
    """Return what cannot be read, why, and the remedy."""
    remedy = f"ask for the right to {unread.permission}" if unread.permission else "look at the API server"
    if "not find the requested resource" in unread.why or "page not found" in unread.why:
        remedy = "install Drawbar's chart, or use a release that serves resource.k8s.io/v1"
    return f"{unread.what} cannot be read: {unread.why}; {remedy}"


async def read(api: client.Client, target: Target, *, driver: str) -> observed.Cluster:
    """Return what belongs to the target.

    Raises:
        Missing: there is no object of that name.
        errors.DrawbarError: nothing at all can be read.
    """
    readings = _Readings(reader=Reader(api))
    read_one: dict[str, Callable[[_Readings, Target, str], Awaitable[observed.Cluster]]] = {
        "": _whole,
        "fabric": _of_fabric,
        "node": _of_node,
        "claim": _of_claim,
        "pod": _of_pod,
    }
    return await read_one[target.kind](readings, target, driver)


async def _whole(readings: _Readings, _target: Target, driver: str) -> observed.Cluster:
    (
        listed_fabrics,
        listed_maintenances,
        listed_slices,
        listed_attachments,
        listed_claims,
    ) = await asyncio.gather(
        readings.list_all(kinds.FABRIC, fabrics.Fabric),
        readings.list_all(kinds.MAINTENANCE, maintenances.Maintenance),
        readings.list_all(kinds.SLICE, slices.ResourceSlice, fields=f"spec.driver={driver}"),
        readings.list_all(kinds.ATTACHMENT, attachments.DeviceAttachment),
        readings.list_all(kinds.CLAIM, claims.ResourceClaim),
    )
    if readings.failed == 5:
        raise errors.DrawbarError("nothing can be read: " + readings.unread[0])
    return observed.Cluster(
        driver=driver,
        fabrics=listed_fabrics,
        maintenances=listed_maintenances,
        slices=listed_slices,
        attachments=listed_attachments,
        claims=listed_claims,
        unread=tuple(readings.unread),
    )


async def _of_fabric(readings: _Readings, target: Target, driver: str) -> observed.Cluster:
    whole = await _whole(readings, target, driver)
    chosen = tuple(fabric for fabric in whole.fabrics if fabric.metadata.name == target.name)
    if not chosen and whole.fabrics:
        names = ", ".join(sorted(fabric.metadata.name for fabric in whole.fabrics)[:5])
        raise Missing(f"there is no Fabric {target.name}; there is {names}")
    return observed.Cluster(
        driver=driver,
        fabrics=chosen,
        slices=tuple(entry for entry in whole.slices if _is_in(entry.spec.pool.name, target.name)),
        attachments=tuple(entry for entry in whole.attachments if entry.spec.fabric == target.name),
        claims=tuple(
            claim
            for claim in whole.claims
            if any(_is_in(result.pool, target.name) for result in claim.results(driver))
        ),
        unread=whole.unread,
    )


def _is_in(pool: str, fabric: str) -> bool:
    return pool == fabric or pool.startswith(f"{fabric}/")


async def _of_node(readings: _Readings, target: Target, driver: str) -> observed.Cluster:
    listed, own = await asyncio.gather(
        readings.list_all(
            kinds.ATTACHMENT,
            attachments.DeviceAttachment,
            labels=f"{attachments.NODE_LABEL}={attachments.node_label(target.name)}",
        ),
        readings.list_all(
            kinds.SLICE, slices.ResourceSlice, fields=f"spec.driver={driver},spec.nodeName={target.name}"
        ),
    )
    if not listed and not own and not readings.unread:
        node = await readings.find(kinds.NODE, target.name, core.Node)
        if node is None and not readings.unread:
            raise Missing(f"there is no node {target.name}; kubectl get nodes lists them")
    wanted = {
        (entry.spec.claim.namespace, entry.spec.claim.name)
        for entry in listed
        if entry.spec.claim is not None
    }
    given = await _claims(readings, wanted)
    return observed.Cluster(
        driver=driver,
        fabrics=await _fabrics(readings, {attachment.spec.fabric for attachment in listed}),
        slices=own,
        attachments=listed,
        claims=given,
        unread=tuple(readings.unread),
    )


async def _of_claim(readings: _Readings, target: Target, driver: str) -> observed.Cluster:
    wanted = await _claims(readings, {(target.namespace, target.name)})
    if not wanted and not readings.unread:
        raise Missing(
            f"there is no ResourceClaim {target.name} in namespace {target.namespace}; -n names another namespace"
        )
    return await _with_devices(readings, wanted, driver)


async def _of_pod(readings: _Readings, target: Target, driver: str) -> observed.Cluster:
    pod = await readings.find(kinds.POD, target.name, observed.Pod, target.namespace)
    if pod is None and not readings.unread:
        raise Missing(
            f"there is no pod {target.name} in namespace {target.namespace}; -n names another namespace"
        )
    names = pod.claim_names if pod is not None else ()
    wanted = await _claims(readings, {(target.namespace, name) for name in names})
    return await _with_devices(readings, wanted, driver)


async def _with_devices(
    readings: _Readings, wanted: tuple[claims.ResourceClaim, ...], driver: str
) -> observed.Cluster:
    results = [result for claim in wanted for result in claim.results(driver)]
    served = {
        fabric.metadata.name: fabric
        for fabric in await _fabrics(readings, {result.pool.partition("/")[0] for result in results})
    }
    wanted_names = {
        attachments.name(fabric, device)
        for result in results
        for fabric in (result.pool.partition("/")[0],)
        for device in _members(served.get(fabric), result.device)
    }
    held = await asyncio.gather(
        *(
            readings.find(kinds.ATTACHMENT, name, attachments.DeviceAttachment)
            for name in sorted(wanted_names)
        )
    )
    listed = tuple(attachment for attachment in held if attachment is not None)
    listed += await _of_rules(readings, wanted, driver)
    return observed.Cluster(
        driver=driver,
        fabrics=tuple(served.values()),
        attachments=listed,
        claims=wanted,
        wanted=wanted,
        unread=tuple(readings.unread),
    )


async def _of_rules(
    readings: _Readings, wanted: tuple[claims.ResourceClaim, ...], driver: str
) -> tuple[attachments.DeviceAttachment, ...]:
    """Return the attachments of composites of rules, whose members their attachments alone name."""
    given = {
        (result.pool.partition("/")[0], result.device): claim.status.allocation.node
        for claim in wanted
        for result in claim.results(driver)
        if names.is_of_rule(result.device)
        and claim.status.allocation is not None
        and claim.status.allocation.node
    }
    listed = await asyncio.gather(
        *(
            readings.list_all(
                kinds.ATTACHMENT,
                attachments.DeviceAttachment,
                labels=f"{attachments.NODE_LABEL}={attachments.node_label(node)}",
            )
            for node in sorted({node for node in given.values() if node})
        )
    )
    return tuple(
        attachment
        for of_node in listed
        for attachment in of_node
        if attachment.spec.composite is not None
        and (attachment.spec.fabric, attachment.spec.composite.name) in given
    )


async def _claims(readings: _Readings, names: Iterable[tuple[str, str]]) -> tuple[claims.ResourceClaim, ...]:
    results = await asyncio.gather(
        *(
            readings.find(kinds.CLAIM, name, claims.ResourceClaim, namespace)
            for namespace, name in sorted(names)
        )
    )
    return tuple(claim for claim in results if claim is not None)


def _members(fabric: fabrics.Fabric | None, device: str) -> tuple[str, ...]:
    """The DRA names of the devices that are attached for a device that a claim was given."""
    for composite in fabric.spec.composites if fabric is not None else ():
        if composite.name == device:
            return tuple(map(names.label, composite.devices))
    return (device,)


async def _fabrics(readings: _Readings, wanted: Iterable[str]) -> tuple[fabrics.Fabric, ...]:
    asked = (readings.find(kinds.FABRIC, name, fabrics.Fabric) for name in sorted(wanted))
    results = await asyncio.gather(*asked)
    return tuple(fabric for fabric in results if fabric is not None)
