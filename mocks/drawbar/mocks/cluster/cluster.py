"""A whole cluster on this machine: the doubles, the simulated fabric, the controller and the node daemons.

    async with Cluster.running(Settings(...)) as cluster:
        pods = await cluster.api.list_all(kinds.POD, into=...)

On entry every process serves. With daemons, the controller has also published all devices of the fabric. On exit every
process and file is removed. After an error the logs stay, and the error names their folder.

Order at the start: the API server comes before its clients. The kubelet double comes before the node daemons, because
it empties the CDI directory as a boot does. The Fabric object comes last, after the controller and the node daemons.
"""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Self

import msgspec

from drawbar.fabric import contract
from drawbar.fabric import errors as fabric_errors
from drawbar.mocks import attachments, controlloop, sysfs
from drawbar.mocks import errors as mock_errors
from drawbar.mocks.apiserver import profiles
from drawbar.mocks.cluster import children, deployment, errors, fabricdoubles, paths, settings
from drawbar.mocks.kube import client, connections, kinds, meta, mirror
from drawbar.mocks.kubelet import settings as kubelet_settings
from drawbar.mocks.scheduler import objects

FABRIC = "rack-1"
CONTROLLER_ACCOUNT = "drawbar:drawbar-controller"
NODE_ACCOUNT = "drawbar:drawbar-node"
SOCKET_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A line for people about the current step of the start."""

    what: str


Happening = children.Started | Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaks:
    """The leaks after every device was returned; a clean run has only zeros.

    Attributes:
        fabric: the number of attached devices according to the fabric.
        attachments: the number of DeviceAttachments.
        cdi: the number of CDI files on the nodes.
        sysfs: the number of devices in the nodes' mocked trees.
    """

    fabric: int
    attachments: int
    cdi: int
    sysfs: int

    @property
    def total(self) -> int:
        """Return the sum."""
        return self.fabric + self.attachments + self.cdi + self.sysfs


class _FabricStatus(meta.Struct, frozen=True):
    conditions: tuple[meta.Condition, ...] = ()
    devices: int = 0


class _Fabric(meta.Struct, frozen=True):
    metadata: meta.ObjectMeta
    status: _FabricStatus = _FabricStatus()


def _ignore(_: Happening) -> None:
    """Ignore the event."""


class Cluster:
    """A running cluster; make it with `running`.

    Attributes:
        api: a client with all rights.
        paths: the paths of its files.
        keep_logs: keep the logs after the end; set it if the block failed.
    """

    def __init__(
        self, options: settings.Settings, where: paths.ClusterPaths, report: Callable[[Happening], None]
    ) -> None:
        self.api: client.Client
        self.paths = where
        self.keep_logs = False
        self._options = options
        self._double = fabricdoubles.DOUBLES[options.double]
        self._report = report
        self._doing = ""
        self._children = children.Children(where.logs, report)

    @classmethod
    @contextlib.asynccontextmanager
    async def running(
        cls, options: settings.Settings, report: Callable[[Happening], None] = _ignore
    ) -> AsyncIterator[Self]:
        """Run a cluster until the block ends, and yield it; the end of a double cancels the block.

        Raises:
            errors.ClusterError: it does not start, or one of its processes ended.
            mock_errors.UsageError: the settings make no sense.
        """
        settings.validate(options)
        cluster = cls(options, paths.create(options.nodes), report)
        failure: Exception | None = None
        try:
            async with cluster._starting():
                try:
                    yield cluster
                except Exception as error:  # noqa: BLE001 - raised again below, outside the task group and its wrapping
                    failure = error
        except* mock_errors.MockError as group:
            cluster.keep_logs = True
            raise controlloop.first_error(group) from None
        finally:
            await _finish_despite_cancellation(
                cluster._clean_up(keep_logs=cluster.keep_logs or failure is not None)
            )
        if failure is not None:
            raise failure

    @property
    def pids(self) -> dict[str, int]:
        """Return the running processes by name; a node daemon has its node's name."""
        return self._children.pids

    @property
    def answers(self) -> dict[str, Any]:
        """Return the ready line of each double, by name."""
        return self._children.answers

    @property
    def fabric(self) -> dict[str, Any]:
        """Return the Fabric's spec: adapter, endpoint and parameters."""
        return {
            "adapter": self._double.adapter,
            "endpoint": self._children.answers["fabric"]["endpoint"],
            "parameters": self._double.parameters(self._options),
        }

    def log(self, name: str) -> Path:
        """Return the path of a process's log file."""
        return self._children.log(name)

    async def leaks(self) -> Leaks:
        """Count the leaks and return them. The count of attached devices comes from the fabric itself."""
        left = await self.api.list_all(kinds.ATTACHMENT, into=attachments.DeviceAttachment)
        nodes = [self.paths.node(name) for name in self._options.nodes]
        return Leaks(
            fabric=await self._count_attached_devices(),
            attachments=len(left.items),
            cdi=sum(len(list(node.cdi.glob("*.json"))) for node in nodes),
            sysfs=sum(len(sysfs.SysfsTree.open(node.sysfs).list_attached_cards()) for node in nodes),
        )

    async def _count_attached_devices(self) -> int:
        spec = self.fabric
        where = contract.AdapterConfig(
            name=FABRIC, endpoint=spec["endpoint"], parameters=spec["parameters"], timeout_seconds=10
        )
        try:
            async with await _adapter(spec["adapter"]).connect(where) as adapter:
                held = await adapter.devices()
        except fabric_errors.FabricError as error:
            raise errors.ClusterError(f"the fabric does not answer: {error}") from error
        return sum(device.connection is not None for device in held.devices)

    async def _clean_up(self, *, keep_logs: bool) -> None:
        await self._children.stop()
        await asyncio.to_thread(_remove, self.paths, keep_logs)

    @contextlib.asynccontextmanager
    async def _starting(self) -> AsyncIterator[None]:
        """Start everything until devices can be claimed."""
        async with asyncio.TaskGroup() as tasks, contextlib.AsyncExitStack() as stack:
            lives: list[asyncio.Task[None]] = []

            def start(name: str, *arguments: str, double: bool) -> None:
                program = children.Program(name=name, arguments=arguments, double=double)
                lives.append(tasks.create_task(self._children.run(program), name=name))

            try:
                async with asyncio.timeout(self._options.start_seconds):
                    await self._start_doubles(start, stack)
                    for name in self._options.nodes:
                        tree = sysfs.SysfsTree.open(self.paths.node(name).sysfs)
                        await stack.enter_async_context(tree.reacting())
                    if self._options.daemons:
                        await self._start_daemons(start)
            except TimeoutError as error:
                raise errors.ClusterError(
                    f"the cluster did not start in {self._options.start_seconds:g} s, it was still {self._doing} "
                    f"(logs: {self.paths.logs})"
                ) from error
            yield
            for life in lives:
                life.cancel()

    async def _start_doubles(self, start: Callable[..., None], stack: contextlib.AsyncExitStack) -> None:
        where, options = self.paths, self._options
        self._do("starting the API server and the fabric")
        accounts = [CONTROLLER_ACCOUNT, *(f"{NODE_ACCOUNT}:{name}" for name in options.nodes)]
        accounts += options.service_accounts
        faults = () if options.faults is None else ("--faults", str(options.faults.absolute()))
        start(
            "apiserver",
            *(
                children.DOUBLES,
                "apiserver",
                "--profile",
                options.profile,
                "--kubeconfig-dir",
                str(where.kubeconfigs),
            ),
            *(word for account in accounts for word in ("--service-account", account)),
            *faults,
            double=True,
        )
        await _finish_despite_cancellation(
            asyncio.to_thread(self._build)
        )  # a thread left behind would write while we clean up
        start("fabric", *self._double.command(where), double=True)
        await self._children.ready("apiserver")
        self.api = await stack.enter_async_context(
            client.connecting(connections.from_kubeconfig(where.admin))
        )
        self._do("applying deploy/ and starting the scheduler and the kubelets")
        release = profiles.profile(options.profile)
        await deployment.apply(self.api, policies=True, version=release.dynamic_version)
        admin = ("--kubeconfig", str(where.admin))
        start(
            "scheduler",
            children.DOUBLES,
            "scheduler",
            *admin,
            "--poll-seconds",
            str(options.poll_seconds),
            double=True,
        )
        pairs = [f"{name}={where.node(name).kubelet}" for name in options.nodes]
        start(
            "kubelet",
            *(children.DOUBLES, "kubelet", *admin, *_release(options.profile)),
            *(f"--node={pair}" for pair in pairs),
            double=True,
        )
        for name in ("fabric", "scheduler", "kubelet"):
            await self._children.ready(name)

    def _do(self, what: str) -> None:
        self._doing = what
        self._report(Waiting(what=what))

    def _build(self) -> None:
        """Make the mocked trees and the fabric's configuration, which names them. Blocking."""
        for name in self._options.nodes:
            node = self.paths.node(name)
            sysfs.SysfsTree.create(node.sysfs, slots=self._options.slots, uevent_socket=node.uevents)
        described = self._double.configuration(self._options, self.paths)
        self.paths.fabric_configuration.write_bytes(msgspec.json.encode(described))

    async def _start_daemons(self, start: Callable[..., None]) -> None:
        self._do(f"starting the controller and {len(self._options.nodes)} node daemons")
        start(
            "controller",
            *(children.DAEMONS, "controller", "--kubeconfig", str(self.paths.account("drawbar-controller"))),
            # The same after a restart, so that the controller need not wait for the lease to expire.
            *("--identity", "controller"),
            # Doubles of fabric managers listen on this machine.
            *("--fabric-networks", "127.0.0.0/8,::1/128"),
            *("--http-address", self.paths.controller_pages),
            double=False,
        )
        for name in self._options.nodes:
            node = self.paths.node(name)
            start(
                name,
                *(children.DAEMONS, "node", "--node-name", name),
                *("--kubeconfig", str(self.paths.account(f"drawbar-node-{name}"))),
                *("--kubelet-dir", str(node.kubelet), "--cdi-dir", str(node.cdi)),
                *("--sysfs", str(node.sysfs), "--uevents", f"unix:{node.uevents}"),
                double=False,
            )
        await self._declare_fabric()
        self._do("waiting for the controller to see the pool")
        classic = profiles.profile(self._options.profile).classic
        await self._wait_until_connected(published=not classic)
        for name in self._options.nodes:
            self._do(f"waiting for the daemon of {name} to serve its kubelet")
            await _exists(self.paths.node(name).registration)

    async def _wait_until_connected(self, *, published: bool) -> None:
        """Return once the Fabric is Connected with all its devices; the caller sets the deadline.

        With classic allocation no ResourceSlices are `published`, and the Fabric's own count is used.
        """
        changed = asyncio.Event()

        def notice(_old: object, _new: object) -> None:
            changed.set()

        mirrored = mirror.Mirror(self.api, kinds.FABRIC, into=_Fabric, changed=notice)
        offers = mirror.Mirror(self.api, kinds.SLICE, into=objects.Slice, changed=notice)

        def complete() -> bool:
            fabric = mirrored.get(FABRIC)
            if fabric is None or not meta.is_true(fabric.status.conditions, "Connected"):
                return False
            devices = sum(len(offer.spec.devices) for offer in offers) if published else fabric.status.devices
            return devices >= self._options.devices

        async with asyncio.TaskGroup() as tasks:
            watches = [tasks.create_task(mirrored.run())]
            if published:
                watches.append(tasks.create_task(offers.run()))
            while not complete():
                await changed.wait()
                changed.clear()
            for watch in watches:
                watch.cancel()

    async def _declare_fabric(self) -> None:
        body = {
            "apiVersion": kinds.FABRIC.api_version,
            "kind": kinds.FABRIC.kind,
            "metadata": {"name": FABRIC},
            "spec": self.fabric,
        }
        await self.api.create(kinds.FABRIC, body, into=dict[str, Any])


def _adapter(name: str) -> type[contract.FabricAdapter]:
    """Return the installed adapter of that name."""
    (point,) = metadata.entry_points(group="drawbar.fabric_adapters", name=name)
    adapter: type[contract.FabricAdapter] = point.load()
    return adapter


def _release(profile: str) -> tuple[str, ...]:
    """Return the kubelet's option for the release; empty for profiles that are no release."""
    release = profile.removesuffix("-classic")
    return ("--release", release) if release in kubelet_settings.SERVICES_BY_RELEASE else ()


async def _finish_despite_cancellation(work: Coroutine[Any, Any, None]) -> None:
    """Run bounded work to its end, even after one cancellation; then raise the cancellation."""
    task = asyncio.Task(work, name="clean-up")
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


async def _exists(path: Path) -> None:
    """Return once the file exists; the standard library cannot watch for one."""
    while not path.exists():  # noqa: ASYNC110, ASYNC240 - there is no event to wait for, and a stat does not block
        await asyncio.sleep(SOCKET_LOOK_SECONDS)


def _remove(where: paths.ClusterPaths, keep_logs: bool) -> None:
    if not keep_logs:
        shutil.rmtree(where.directory)
        return
    for path in where.directory.iterdir():
        if path == where.logs:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
