"""The node's record of the claims used by its pods, by namespace and name.

Everything but the `prepared` flag is in `dra_manager_state`, written before a plugin is called; the flag is only in
memory. So a restarted kubelet still unprepares the claims of the previous one, and calls Prepare again for the next
sandbox. As in the real kubelet, the devices of a second answer are added to those of the first.

Source: pkg/kubelet/cm/dra/claiminfo.go of Kubernetes 1.36, as described by the fact pages.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from drawbar.mocks.kubelet import checkpoint

Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device of a plugin's answer. Without request names it is for all requests."""

    driver: str
    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    share_id: str | None = None

    def serves(self, request: str) -> bool:
        """Return true if it is for this request of its claim; an empty name means any."""
        return not request or not self.requests or request in self.requests


@dataclass(slots=True, kw_only=True)
class ClaimInfo:
    """One claim on this node.

    Attributes:
        drivers: all drivers with devices in the allocation, even before their answers.
        handles: the data from each driver's controller, by driver; only in releases with handles.
        pods: the uids of its pods.
    """

    namespace: str
    name: str
    uid: str
    drivers: tuple[str, ...]
    pods: set[str] = field(default_factory=set)
    prepared: bool = False
    devices: list[Device] = field(default_factory=list)
    handles: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """Return namespace and name."""
        return self.namespace, self.name


class ClaimInfos:
    """All claims of one node. Changes are only in memory until `save`."""

    def __init__(self, directory: Path) -> None:
        """Load the claims stored by the previous kubelet.

        Raises:
            errors.StateError: the file is corrupt.
        """
        self._path = directory / checkpoint.FILE
        infos = [_info(entry) for entry in checkpoint.load(self._path)]
        self._claims: dict[Key, ClaimInfo] = {info.key: info for info in infos}

    def __iter__(self) -> Iterator[ClaimInfo]:
        return iter(tuple(self._claims.values()))

    def get(self, namespace: str, name: str) -> ClaimInfo | None:
        """Return the claim of that name, of any uid, or None."""
        return self._claims.get((namespace, name))

    def add(self, info: ClaimInfo) -> ClaimInfo:
        """Add a claim and return it."""
        self._claims[info.key] = info
        return info

    def remove(self, infos: Iterable[ClaimInfo]) -> None:
        """Forget claims."""
        for info in infos:
            self._claims.pop(info.key, None)

    def used_by(self, pod_uid: str) -> list[ClaimInfo]:
        """Return the claims of a pod."""
        return [info for info in self._claims.values() if pod_uid in info.pods]

    def pods(self) -> set[str]:
        """Return the uids of all pods with claims."""
        return {pod for info in self._claims.values() for pod in info.pods}

    def save(self) -> None:
        """Store everything but the `prepared` flags."""
        checkpoint.save(self._path, (_entry(info) for info in self._claims.values()))


def _entry(info: ClaimInfo) -> checkpoint.Entry:
    by_driver: dict[str, list[checkpoint.Device]] = {driver: [] for driver in info.drivers}
    for device in info.devices:
        by_driver.setdefault(device.driver, []).append(
            checkpoint.Device(
                pool_name=device.pool,
                device_name=device.device,
                share_id=device.share_id,
                request_names=device.requests,
                cdi_device_ids=device.cdi,
            )
        )
    return checkpoint.Entry(
        claim_uid=info.uid,
        claim_name=info.name,
        namespace=info.namespace,
        pod_uids={uid: {} for uid in sorted(info.pods)},
        driver_state={
            name: checkpoint.DriverState(
                devices=tuple(held), resource_handle=info.handles.get(name, msgspec.UNSET)
            )
            for name, held in by_driver.items()
        },
    )


def _info(entry: checkpoint.Entry) -> ClaimInfo:
    devices = [
        Device(
            driver=driver,
            pool=device.pool_name,
            device=device.device_name,
            requests=device.request_names,
            cdi=device.cdi_device_ids,
            share_id=device.share_id,
        )
        for driver, state in entry.driver_state.items()
        for device in state.devices or ()
    ]
    return ClaimInfo(
        namespace=entry.namespace,
        name=entry.claim_name,
        uid=entry.claim_uid,
        drivers=tuple(entry.driver_state),
        pods=set(entry.pod_uids),
        devices=devices,
        handles={
            driver: state.resource_handle
            for driver, state in entry.driver_state.items()
            if state.resource_handle is not msgspec.UNSET
        },
    )
