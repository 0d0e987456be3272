"""The reader of a status: the whole cluster, or only the part of one fabric, node, claim or pod."""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from drawbar.driver import errors
from drawbar.driver.api import attachments, claims, core, fabrics, maintenances, slices, taintrules
from drawbar.driver.cli import objects, remedies
from drawbar.driver.cli.doctor.findings import NAMED_MAX, Unread
from drawbar.driver.cli.doctor.reading import Reader
from drawbar.driver.cli.status import observed
from drawbar.driver.controller import names
from drawbar.driver.kube import client, discovery, exclusions, kinds
from drawbar.driver.kube import errors as kube_errors

T = TypeVar("T")
OF_ONE_OBJECT = frozenset({"node", "claim", "pod"})
"""The kinds of targets for which only their own objects are read."""
Target = objects.Target
Missing = objects.Missing


class Incomplete(errors.DrawbarError):
    """A necessary object cannot be read."""

    exit_code = errors.ExitStatus.UNREAD


@dataclass(slots=True, kw_only=True)
class _Readings:
    """The results of reads; failures, and objects that cannot be read, are kept as sentences.

    Attributes:
        first: the first failure and its remedy.
        failed: the plural names of the kinds that could not be read.
    """

    reader: Reader
    unread: list[str] = field(default_factory=list)
    first: str = ""
    failed: set[str] = field(default_factory=set)

    async def list_all(
        self,
        kind: kinds.Kind,
        into: type[T],
        *,
        labels: str = "",
        fields: str = "",
        namespace: str | None = None,
    ) -> tuple[T, ...]:
        """Return all objects that match; empty if they cannot be read."""

        async def ask() -> tuple[T, ...]:
            listing = await self.reader.api.list_all(
                kind, into=into, labels=labels, fields=fields, namespace=namespace
            )
            self.unread += describe_unreadable(listing.unreadable)
            return listing.items

        result = await self.reader.attempt(kind.plural, f"list {kind.plural}", ask)
        return () if self._is_unread(result, kind) else result  # type: ignore[return-value]

    async def list_rules(self) -> tuple[taintrules.DeviceTaintRule, ...]:
        """Return the DeviceTaintRules in the newest served version; empty if there is no such kind."""
        try:
            served = await discovery.resources(self.reader.api, discovery.RESOURCE_GROUP)
        except kube_errors.KubeError as error:
            self._is_unread(
                Unread(what="devicetaintrules", why=remedies.sentence(error)), kinds.TAINT_RULES[0]
            )
            return ()
        kind = discovery.taint_rules(served)
        return await self.list_all(kind, taintrules.DeviceTaintRule) if kind is not None else ()

    async def find(
        self, kind: kinds.Kind, name: str, into: type[T], namespace: str | None = None
    ) -> T | None:
        """Return one object, or None if it does not exist or cannot be read."""
        result = await self.reader.find(kind, name, into=into, namespace=namespace)
        return None if self._is_unread(result, kind) else result  # type: ignore[return-value]

    def _is_unread(self, result: object, kind: kinds.Kind) -> bool:
        if not isinstance(result, Unread):
            return False
        if (text := sentence(result)) not in self.unread:
            self.unread.append(text)
        remedy = ask_for(result.permission) if result.permission else result.remedy
        self.first = self.first or remedies.plain(result.why) + (f": {remedy}" if remedy else "")
        self.failed.add(kind.plural)
        return True


def describe_unreadable(unreadable: Collection[exclusions.Unreadable]) -> list[str]:
    """Return a sentence for each of the first `NAMED_MAX` unreadable objects, and one for the others."""
    sentences = [str(left) for left in itertools.islice(unreadable, NAMED_MAX)]
    more = len(unreadable) - len(sentences)
    return [*sentences, f"{more} more objects cannot be read"] if more else sentences


def ask_for(permission: str) -> str:
    """Return the remedy for a missing right."""
    return f"ask an administrator for the right to {permission}; the ClusterRole drawbar-viewer has it"


def sentence(unread: Unread) -> str:
    """Return the sentence about a failed read: the object, the reason and the remedy."""
    remedy = unread.remedy
    if unread.permission:
        remedy = ask_for(unread.permission)
    if "not find the requested resource" in unread.why or "page not found" in unread.why:
        remedy = "install Drawbar's chart, or use a release that serves resource.k8s.io/v1"
    return f"{unread.what} cannot be read: {unread.why}" + (f"; {remedy}" if remedy else "")


async def read(api: client.Client, target: objects.Target, *, driver: str) -> observed.Cluster:
    """Return the target's part of the cluster: for a node, claim or pod its own objects, else the whole cluster.

    Args:
        api: the cluster's API server.
        target: an object, or the whole cluster.
        driver: the DRA driver's name.

    Raises:
        Missing: there is no object of that name.
        Incomplete: a necessary object cannot be read.
    """
    readings = _Readings(reader=Reader(api))
    read_one: dict[str, Callable[[_Readings, objects.Target, str], Awaitable[observed.Cluster]]] = {
        "node": _read_node,
        "claim": _read_claim,
        "pod": _read_pod,
    }
    if target.kind not in read_one:
        return await _read_whole(readings, driver)
    rules, pods, found = await asyncio.gather(
        readings.list_rules(),
        readings.list_all(
            kinds.POD, observed.UnscheduledPod, fields="spec.nodeName=", namespace=target.namespace
        )
        if target.kind in objects.NAMESPACED
        else _read_nothing(),
        read_one[target.kind](readings, target, driver),
    )
    if readings.failed - {"devicetaintrules"} and not (
        found.fabrics or found.attachments or found.claims or found.slices
    ):
        raise Incomplete(readings.first)
    return msgspec.structs.replace(
        found, rules=rules, pods=pods, unread=tuple(readings.unread), unlisted=frozenset(readings.failed)
    )


async def _read_nothing() -> tuple[()]:
    return ()


async def read_devices(api: client.Client, *, driver: str) -> observed.Cluster:
    """Return fabrics, devices, claims and maintenances of the whole cluster, for a verb that makes changes.

    Raises:
        Incomplete: one of them cannot be read.
    """
    readings = _Readings(reader=Reader(api))
    cluster = await _read_whole(readings, driver, with_causes=False)
    if cluster.unread:
        raise Incomplete(f"not everything can be read, so nothing was changed: {cluster.unread[0]}")
    return cluster


async def _read_whole(readings: _Readings, driver: str, *, with_causes: bool = True) -> observed.Cluster:
    """Return the whole cluster; `with_causes` adds the rules and pods that show why a claim waits."""
    (
        (listed_fabrics, listed_maintenances, listed_slices, listed_attachments),
        (listed_claims, listed_rules, listed_pods),
    ) = await asyncio.gather(
        asyncio.gather(
            readings.list_all(kinds.FABRIC, fabrics.Fabric),
            readings.list_all(kinds.MAINTENANCE, maintenances.Maintenance),
            readings.list_all(kinds.SLICE, slices.ResourceSlice, fields=f"spec.driver={driver}"),
            readings.list_all(kinds.ATTACHMENT, attachments.DeviceAttachment),
        ),
        asyncio.gather(
            readings.list_all(kinds.CLAIM, claims.ResourceClaim),
            readings.list_rules() if with_causes else _read_nothing(),
            readings.list_all(kinds.POD, observed.UnscheduledPod, fields="spec.nodeName=")
            if with_causes
            else _read_nothing(),
        ),
    )
    if {"fabrics", "resourceslices", "deviceattachments", "resourceclaims"} <= readings.failed:
        raise Incomplete(readings.first)
    return observed.Cluster(
        driver=driver,
        fabrics=listed_fabrics,
        maintenances=listed_maintenances,
        slices=listed_slices,
        attachments=listed_attachments,
        claims=listed_claims,
        rules=listed_rules,
        pods=listed_pods,
        unread=tuple(readings.unread),
        unlisted=frozenset(readings.failed),
    )


async def _read_node(readings: _Readings, target: objects.Target, driver: str) -> observed.Cluster:
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
    wanted_claims = await _claims(readings, wanted)
    return observed.Cluster(
        driver=driver,
        fabrics=await _fabrics(readings, {attachment.spec.fabric for attachment in listed}),
        slices=own + await _read_fabric_slices(readings, wanted_claims, listed, driver),
        attachments=listed,
        claims=wanted_claims,
        unread=tuple(readings.unread),
    )


async def _read_claim(readings: _Readings, target: objects.Target, driver: str) -> observed.Cluster:
    wanted = await _claims(readings, {(target.namespace, target.name)})
    if not wanted and not readings.unread:
        raise Missing(
            f"there is no ResourceClaim {target.name} in namespace {target.namespace}; -n names another namespace"
        )
    return await _read_devices(readings, wanted, driver)


async def _read_pod(readings: _Readings, target: objects.Target, driver: str) -> observed.Cluster:
    pod = await readings.find(kinds.POD, target.name, observed.Pod, target.namespace)
    if pod is None and not readings.unread:
        raise Missing(
            f"there is no pod {target.name} in namespace {target.namespace}; -n names another namespace"
        )
    names = pod.claim_names if pod is not None else ()
    wanted = await _claims(readings, {(target.namespace, name) for name in names})
    return await _read_devices(readings, wanted, driver)


async def _read_devices(
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
    listed += await _read_rule_attachments(readings, wanted, driver)
    return observed.Cluster(
        driver=driver,
        fabrics=tuple(served.values()),
        slices=await _read_fabric_slices(readings, wanted, listed, driver),
        attachments=listed,
        claims=wanted,
        wanted=wanted,
        unread=tuple(readings.unread),
    )


async def _read_fabric_slices(
    readings: _Readings,
    holders: Iterable[claims.ResourceClaim],
    held: Iterable[attachments.DeviceAttachment],
    driver: str,
) -> tuple[slices.ResourceSlice, ...]:
    """Return the slices of the fabrics' pools with only the devices of these claims and attachments, for their taints."""
    wanted: dict[str, set[str]] = defaultdict(set)
    for result in (result for claim in holders for result in claim.results(driver)):
        wanted[result.pool].add(result.device)
    for spec in (attachment.spec for attachment in held):
        wanted[spec.pool] |= {spec.device, spec.allocated}
    if not any("/" in pool for pool in wanted):
        return ()
    listed = await readings.list_all(
        kinds.SLICE, slices.ResourceSlice, fields=f"spec.driver={driver},spec.nodeName="
    )
    return tuple(
        msgspec.structs.replace(
            entry,
            spec=msgspec.structs.replace(
                entry.spec,
                devices=tuple(
                    device for device in entry.spec.devices if device.name in wanted[entry.spec.pool.name]
                ),
            ),
        )
        for entry in listed
        if entry.spec.pool.name in wanted
    )


async def _read_rule_attachments(
    readings: _Readings, wanted: tuple[claims.ResourceClaim, ...], driver: str
) -> tuple[attachments.DeviceAttachment, ...]:
    """Return the attachments of composites of rules; only their attachments name the members."""
    node_by_composite = {
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
            for node in sorted({node for node in node_by_composite.values() if node})
        )
    )
    return tuple(
        attachment
        for of_node in listed
        for attachment in of_node
        if attachment.spec.composite is not None
        and (attachment.spec.fabric, attachment.spec.composite.name) in node_by_composite
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
    """Return the DRA names of the devices attached for a device of a claim: a composite's members, or itself."""
    for composite in fabric.spec.composites if fabric is not None else ():
        if composite.name == device:
            return tuple(map(names.label, composite.devices))
    return (device,)


async def _fabrics(readings: _Readings, wanted: Iterable[str]) -> tuple[fabrics.Fabric, ...]:
    asked = (readings.find(kinds.FABRIC, name, fabrics.Fabric) for name in sorted(wanted))
    results = await asyncio.gather(*asked)
    return tuple(fabric for fabric in results if fabric is not None)
