"""Common parts of tests of a whole cluster in one process: daemons as tasks, objects, and waits.

The doubles are not here, because each test needs others.
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from drawbar.mocks import kubelet, sysfs
from drawbar.mocks.kube import backoff, client, kinds

SHOWN = 2000
"""The limit for the last value in a message, in characters."""
PAUSE_FIRST_SECONDS, PAUSE_MOST_SECONDS = 0.02, 0.1
KUBELET = kubelet.Settings(
    reconcile_seconds=0.05, retry_first_seconds=0.05, resync_seconds=0.5, unprepare_seconds=0.2
)
"""Settings of a kubelet with short waits."""

T = TypeVar("T")


class Kind(Protocol):
    """A kind of objects, of either client."""

    @property
    def api_version(self) -> str:
        """Return the group and version."""

    @property
    def kind(self) -> str:
        """Return its name."""


def pauses() -> backoff.Backoff:
    """Return the pauses between two reads of an awaited state, without jitter, so that virtual time repeats.

    They grow, because a read is as expensive as the awaited work.
    """
    return backoff.Backoff(PAUSE_FIRST_SECONDS, PAUSE_MOST_SECONDS, uniform=max)


class World:
    """A cluster and an administrator's client; call `stop_all` in the end.

    Attributes:
        api: a client with all rights: that of the driver under test, or `drawbar.mocks.kube.client`.
    """

    def __init__(self, api: Any) -> None:
        self.api = api
        self._daemons: dict[str, asyncio.Task[None]] = {}

    def run(self, name: str, daemon: Coroutine[Any, Any, None]) -> None:
        """Start a daemon; `until` raises the daemon's error if it ends."""
        self._daemons[name] = asyncio.Task(daemon, name=name)

    async def stop(self, name: str) -> None:
        """Stop a daemon and wait for its end."""
        task = self._daemons.pop(name)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def stop_all(self) -> None:
        """Stop all daemons."""
        for name in tuple(self._daemons):
            await self.stop(name)

    async def create(
        self, kind: Kind, name: str, namespace: str | None = None, **content: Any
    ) -> dict[str, Any]:
        """Create an object and return it as stored."""
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, **content}
        stored: dict[str, Any] = await self.api.create(kind, body, namespace=namespace, into=dict)
        return stored

    async def pod_using(self, name: str, *uses: Mapping[str, str]) -> None:
        """Create a pod whose container uses these claims, written as in a pod's `resourceClaims`."""
        claims = [{"name": use["name"]} for use in uses]
        container = {"name": "main", "image": "none", "resources": {"claims": claims}}
        await self.create(
            kinds.POD, name, "default", spec={"containers": [container], "resourceClaims": list(uses)}
        )

    async def pod_from_template(
        self, name: str, devices: Mapping[str, Any], uses: Sequence[str] = ("disk",)
    ) -> None:
        """Create a template, and a pod of the same name with one claim from it for each of `uses`.

        Args:
            name: the name of the template and the pod.
            devices: the claims' requests, as in `spec.devices`.
            uses: the pod's names of its claims.
        """
        await self.create(kinds.CLAIM_TEMPLATE, name, "default", spec={"spec": {"devices": devices}})
        await self.pod_using(name, *({"name": use, "resourceClaimTemplateName": name} for use in uses))

    async def until(
        self, read: Callable[[], Awaitable[T]], holds: Callable[[T], Any], seconds: float = 30
    ) -> T:
        """Read until `holds` is true of the value; return that value.

        Raises:
            TimeoutError: it stayed false; the message contains the last value.
        """
        last: object = "nothing"
        pause = pauses()
        try:
            async with asyncio.timeout(seconds):
                while not holds(value := await read()):
                    last = value
                    for daemon in self._daemons.values():
                        # A daemon that ended raises its reason.
                        if daemon.done():
                            daemon.result()
                    await asyncio.sleep(pause.count_failure())
                return value
        except TimeoutError as error:
            raise TimeoutError(
                f"not so within {seconds:.0f} s; read last: {str(_brief(last))[:SHOWN]}"
            ) from error


def _brief(value: object) -> object:
    """Return the value without `managedFields`, the largest and least useful part."""
    match value:
        case dict():
            return {key: _brief(item) for key, item in value.items() if key != "managedFields"}
        case list() | tuple():
            return [_brief(item) for item in value]
        case _:
            return value


async def vanish(api: Any, name: str) -> None:
    """Delete a DeviceAttachment and remove its finalizer, as an administrator's force does.

    The deletion comes first: a controller restores a missing finalizer of a live object.

    Raises:
        NotFound: there is none, or its controller finished the deletion meanwhile.
    """
    answer = json.loads(await api.request("DELETE", kinds.ATTACHMENT.path(name=name)))
    if answer["kind"] != "Status":
        bare = {"metadata": {"finalizers": None}}
        await api.patch(kinds.ATTACHMENT, name, bare, content=client.Patch.MERGE, into=dict)


def result(pool: str, device: str, *, driver: str = "drawbar.dev", request: str = "r") -> dict[str, Any]:
    """Return a device of an allocation, with the binding conditions under which the driver publishes it."""
    return {
        "request": request,
        "driver": driver,
        "pool": pool,
        "device": device,
        "bindingConditions": [f"{driver}/attached", f"{driver}/visible"],
        "bindingFailureConditions": [f"{driver}/attach-failed", f"{driver}/node-failed"],
    }


def allocation(node: str, *results: Mapping[str, Any], at: str | None) -> dict[str, Any]:
    """Return a claim's `status.allocation` as a scheduler writes it for devices on a node.

    Args:
        node: the node's name.
        results: the devices, as returned by `result`.
        at: the timestamp, as RFC 3339; None for an allocation without one.
    """
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "devices": {"results": list(results)},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        **({} if at is None else {"allocationTimestamp": at}),
    }


async def apply_status(api: Any, name: str, manager: str, **status: Any) -> None:
    """Apply these fields of a DeviceAttachment's status as the field manager `manager`.

    Args:
        api: a client with the right to do it.
        name: the DeviceAttachment's.
        manager: the field manager, `drawbar-controller` or `drawbar-node`.
        status: the fields.
    """
    head = {
        "apiVersion": kinds.ATTACHMENT.api_version,
        "kind": kinds.ATTACHMENT.kind,
        "metadata": {"name": name},
    }
    options: dict[str, Any] = {"content": client.Patch.APPLY, "subresource": "status", "manager": manager}
    await api.patch(kinds.ATTACHMENT, name, head | {"status": status}, into=dict, **options)


def disk(number: int) -> dict[str, Any]:
    """Return an NVMe disk for the configuration of the simulated fabric."""
    identity = {"serial": f"SN000{number}", "pciVendor": 0x144D, "pciDevice": 0xA824}
    return {"id": f"disk-{number}", "class": "nvme", "model": "M1"} | identity


def trees(path: Path, nodes: Iterable[str]) -> dict[str, sysfs.SysfsTree]:
    """Make a mocked /sys with four slots for each node; return the trees by node.

    Each folder also has the uevents' socket.
    """
    trees = {}
    for name in nodes:
        (path / name).mkdir(exist_ok=True)
        trees[name] = sysfs.SysfsTree.create(
            path / name / "sys", slots=4, uevent_socket=path / name / "uevents"
        )
    return trees
