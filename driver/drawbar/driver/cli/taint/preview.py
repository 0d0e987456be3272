"""The effects of a NoExecute taint on the selected devices: the affected claims and pods, and when; pure.

Only the newest generation of a pool counts as published. A device counts as selected if it is published or allocated. A
pod is affected if it is in the reservation of a claim with a selected device. It stays if each such device tolerates
the taint.
"""

import enum
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from drawbar.driver.api import slices, taintrules
from drawbar.driver.cli.taint import observed
from drawbar.driver.slices import encoding


class Device(NamedTuple):
    """A device of the cluster."""

    driver: str
    pool: str
    name: str

    def __str__(self) -> str:
        return "/".join(self)


class Fate(enum.StrEnum):
    """The fate of a pod, the soonest first.

    Kubernetes does not evict pods with extended resources.
    """

    EVICTED = "evicted"
    LATER = "later"
    TOLERATES = "tolerates"
    EXTENDED = "extended-resource"


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that uses a selected device.

    Attributes:
        after_seconds: the seconds from the taint to the eviction, for `Fate.LATER`.
        claims: the names of its claims with selected devices.
    """

    namespace: str
    name: str
    uid: str
    fate: Fate
    after_seconds: int = 0
    claims: tuple[str, ...]
    devices: tuple[Device, ...]


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim with a selected device."""

    namespace: str
    name: str
    devices: tuple[Device, ...]


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The present effects of the taint.

    Attributes:
        cluster_devices: the number of published devices in the cluster.
        published: the selected devices that are published.
        allocated: the selected devices with a claim; some may no longer be published.
        claims: the claims, by namespace and name.
        pods: the pods, by namespace and name.
    """

    cluster_devices: int
    published: tuple[Device, ...]
    allocated: tuple[Device, ...]
    claims: tuple[Claim, ...]
    pods: tuple[Pod, ...]

    @property
    def selects_all(self) -> bool:
        """Return whether every published device is selected, of at least two."""
        return len(self.published) == self.cluster_devices > 1

    def find_pods(self, *fates: Fate) -> tuple[Pod, ...]:
        """Return the pods with one of these fates."""
        return tuple(pod for pod in self.pods if pod.fate in fates)

    @property
    def evicted(self) -> tuple[Pod, ...]:
        """Return the pods that have to go, now or later."""
        return self.find_pods(Fate.EVICTED, Fate.LATER)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Return the namespaces with affected claims."""
        return tuple(sorted({claim.namespace for claim in self.claims}))


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Devices that are tainted at the same time, and the UIDs of the pods that go then."""

    devices: tuple[Device, ...]
    pods: frozenset[str]


def preview(
    selector: taintrules.DeviceSelector | None, taint: slices.Taint, snapshot: observed.Snapshot
) -> Preview:
    """Return the effects of the taint on the selected devices, if its effect were NoExecute.

    Args:
        selector: None selects no device, as in the API.
        taint: its effect does not matter.
        snapshot: the cluster.
    """

    def is_selected(device: Device) -> bool:
        return selector is not None and selector.selects(*device)

    every = list_published(snapshot.slices)
    uses: list[tuple[observed.Claim, observed.Result]] = [
        (claim, result)
        for claim in snapshot.claims
        for result in claim.results
        if is_selected(_device_of(result))
    ]
    by_claim: dict[tuple[str, str], list[Device]] = {}
    for claim, result in uses:
        key = (claim.metadata.namespace, claim.metadata.name)
        by_claim.setdefault(key, []).append(_device_of(result))
    return Preview(
        cluster_devices=len(every),
        published=tuple(sorted(filter(is_selected, every))),
        allocated=tuple(sorted({_device_of(result) for _, result in uses})),
        claims=tuple(
            Claim(namespace=namespace, name=name, devices=tuple(sorted(set(devices))))
            for (namespace, name), devices in sorted(by_claim.items())
        ),
        pods=_pods(uses, taint),
    )


def list_published(listed: Iterable[slices.ResourceSlice]) -> frozenset[Device]:
    """Return the devices of each pool's newest generation."""
    return frozenset(
        Device(item.spec.driver, item.spec.pool.name, device.name)
        for item in slices.newest(listed)
        for device in item.spec.devices
    )


def find_devices(selector: taintrules.DeviceSelector, snapshot: observed.Snapshot) -> tuple[Device, ...]:
    """Return the selected devices, published or allocated, in order."""
    allocated = {_device_of(result) for claim in snapshot.claims for result in claim.results}
    every = list_published(snapshot.slices) | allocated
    return tuple(sorted(device for device in every if selector.selects(*device)))


def batches(pods: Iterable[Pod], size: int) -> tuple[Batch, ...]:
    """Return the devices of these pods in batches of at most `size` pods.

    Each pod is in the batch of its first device, since it goes as soon as one device is tainted. A device with more
    than `size` pods is a batch of its own: a rule cannot select some of a device's pods.
    """
    by_device: dict[Device, set[str]] = {}
    for pod in pods:
        for device in pod.devices:
            by_device.setdefault(device, set()).add(pod.uid)
    result: list[Batch] = []
    gone: set[str] = set()
    devices: list[Device] = []
    going: set[str] = set()
    for device, users in sorted(by_device.items()):
        going_too = users - gone - going
        if devices and len(going) + len(going_too) > size:
            result.append(Batch(devices=tuple(devices), pods=frozenset(going)))
            gone |= going
            devices, going = [], set()
        devices.append(device)
        going |= going_too
    if devices:
        result.append(Batch(devices=tuple(devices), pods=frozenset(going)))
    return tuple(result)


def _device_of(result: observed.Result) -> Device:
    return Device(result.driver, result.pool, result.device)


def _pods(uses: Sequence[tuple[observed.Claim, observed.Result]], taint: slices.Taint) -> tuple[Pod, ...]:
    by_pod: dict[tuple[str, str, str], list[tuple[observed.Claim, observed.Result]]] = {}
    for claim, result in uses:
        for pod in claim.pods:
            by_pod.setdefault((claim.metadata.namespace, pod.name, pod.uid), []).append((claim, result))
    return tuple(_pod(key, used, taint) for key, used in sorted(by_pod.items(), key=lambda item: item[0]))


def _pod(
    key: tuple[str, str, str],
    used: Sequence[tuple[observed.Claim, observed.Result]],
    taint: slices.Taint,
) -> Pod:
    fates = [_fate(claim, result, taint) for claim, result in used]
    order = list(Fate)
    fate, after_seconds = min(fates, key=lambda item: (order.index(item[0]), item[1]))
    return Pod(
        namespace=key[0],
        name=key[1],
        uid=key[2],
        fate=fate,
        after_seconds=after_seconds,
        claims=tuple(sorted({claim.metadata.name for claim, _ in used})),
        devices=tuple(sorted({_device_of(result) for _, result in used})),
    )


def _fate(claim: observed.Claim, result: observed.Result, taint: slices.Taint) -> tuple[Fate, int]:
    """Return the fate of the users of one allocated device, and the seconds until then."""
    if claim.is_of_extended_resource:
        return Fate.EXTENDED, 0
    # The eviction controller ignores tolerations that do not name the effect.
    fitting = [
        item for item in result.tolerations if item.effect == encoding.NO_EXECUTE and _tolerates(item, taint)
    ]
    if any(item.toleration_seconds is None for item in fitting):
        return Fate.TOLERATES, 0
    seconds = min((max(0, item.toleration_seconds or 0) for item in fitting), default=0)
    return (Fate.LATER, seconds) if seconds else (Fate.EVICTED, 0)


def _tolerates(toleration: observed.Toleration, taint: slices.Taint) -> bool:
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or bool(toleration.key and toleration.value == taint.value)


def taints(listed: Iterable[slices.ResourceSlice]) -> tuple[tuple[Device, slices.Taint], ...]:
    """Return the taints that drivers publish, with their devices, from both forms in the slices."""
    entries: list[tuple[Device, slices.Taint]] = []
    for item in slices.newest(listed):
        driver, pool = item.spec.driver, item.spec.pool.name
        for device in item.spec.devices:
            entries += [(Device(driver, pool, device.name), taint) for taint in device.taints]
        entries += [(Device(driver, pool, entry.device), entry.taint) for entry in item.spec.taints]
    return tuple(sorted(entries, key=lambda entry: (entry[0], entry[1].key, entry[1].effect)))
