"""What a node knows of the claims its pods use.

The references are written to a file per pod before the plugin is called, so that a kubelet double that is started again
can still unprepare; the `prepared` flag is in memory only, as in the real kubelet, so Prepare is called again then.
"""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

FILE = "claims.json"


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A device that a plugin prepared. No request names: it is for all requests."""

    driver: str
    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that a pod uses, as stored."""

    namespace: str
    name: str
    uid: str
    drivers: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class ClaimInfo:
    """One claim on this node."""

    reference: Reference
    pods: set[str] = field(default_factory=set)
    prepared: bool = False
    devices: list[Device] = field(default_factory=list)


class ClaimInfos:
    """All claims of one node, by uid."""

    def __init__(self, pods: Path) -> None:
        self._folder = pods
        self._claims: dict[str, ClaimInfo] = {}
        for file in sorted(pods.glob(f"*/{FILE}")):
            for reference in msgspec.json.decode(file.read_bytes(), type=list[Reference]):
                self._add(reference, file.parent.name)

    def hold(self, pod_uid: str, references: list[Reference]) -> list[ClaimInfo]:
        """Notes that the pod uses these claims, in the file first."""
        file = self._folder / pod_uid / FILE
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(msgspec.json.encode(references))
        return [self._add(reference, pod_uid) for reference in references]

    def held_by(self, pod_uid: str) -> list[ClaimInfo]:
        """The claims a pod uses."""
        return [info for info in self._claims.values() if pod_uid in info.pods]

    def pods(self) -> set[str]:
        """The uids of all pods that use a claim."""
        return {pod for info in self._claims.values() for pod in info.pods}

    def release(self, pod_uid: str) -> None:
        """Forgets the pod, its folder, and the claims that no other pod uses."""
        for info in self.held_by(pod_uid):
            info.pods.discard(pod_uid)
            if not info.pods:
                del self._claims[info.reference.uid]
        shutil.rmtree(self._folder / pod_uid, ignore_errors=True)

    def _add(self, reference: Reference, pod_uid: str) -> ClaimInfo:
        info = self._claims.setdefault(reference.uid, ClaimInfo(reference=reference))
        info.pods.add(pod_uid)
        return info
