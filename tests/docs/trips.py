"""Counts through which modules of the driver four trips pass, from a trace of each on the doubles: `python tests/docs/trips.py`.

A trip is a chain of legs. A leg is one call that the event loop, the kubelet or a queue begins, with all calls inside of it,
those in threads as well; the next leg begins when a queue or an event hands the trip's object on. A trip passes a module when one
of its functions is called in a leg and is handed the trip's object or returns it: an argument or the result is one of its names,
or a value with one of them in its fields. A module that answers a question about something else (are writes refused, which
hosts are at fault) is not passed; `Trace.asked` has those. `LEFT_OUT` lists what is not counted, with the reasons.

A trip turns back where a module is called while another call of it waits below for the answer, so where it is called back, and
where a leg begins in a module in which an earlier leg began, with one in another module between them. A return is no turn, nor
is a second call of a module that returned, nor a property that is read. A change that a mirror (of the API server, of sysfs)
reports while it is asked or written is a change of its own, with a trip of its own.
"""

import asyncio
import contextlib
import contextvars
import dataclasses
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.driver.node.preparation import conftest as preparation
from tests.driver.storm import world as storm
from tests.scenes import nodes, waiting

from drawbar.driver.kube import kinds
from drawbar.driver.node.plugin import servicers
from drawbar.mocks.testing import virtualtime
from drawbar.proto.kubelet.dra.v1 import api_pb2

PREFIX = "drawbar.driver."
LIMIT = 14
MIRRORS = ("kube", "node.discovery.devices")
LEFT_OUT = {
    "kube": "the transport to the API server, its mirrors and queues: every trip begins or ends there",
    "api": "the values that are read and written: objects of the API server",
    "controller.names": "values: names and keys of devices",
    "node.inventory.model": "values: cards, functions and slots",
    "node.inventory.files": "the transport to the kernel: reads one file of sysfs",
    "node.inventory.identities": "the transport to the kernel: reads the numbers of one function",
    "node.discovery.slowreads": "the transport to the kernel: reads that may take long",
    "node.inventory.silences": "values: the numbers that a function does not show",
    "node.kernel": "the transport to the kernel: the one door through which sysfs is written",
    "operation": "measures what passes: watchdog and probes",
    "controller.operation": "measures what passes: metrics and adapters that count",
    "node.operation": "measures what passes: metrics and counted uevents",
    "controller.attachments.actions": "values: what a plan returns",
    "node.attachments.actions": "values: what a plan rests on and returns",
    "containment": "keeps unexpected errors from ending a daemon: every round and every callback is made in it",
    "routes": "values: the rows of both routing tables",
    "sightings": "a collection: when something was first seen",
    "controller.pairs": "a collection: which devices were refused at which hosts, and when",
    "controller.retries": "a collection: how often claims failed, and when",
}
_GENERATED = "<string>"
"""The file of methods that dataclasses generate: to make a value is not to enter a module."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leg:
    """Calls of one function; `when` looks at its arguments."""

    module: str
    function: str
    when: Callable[[dict[str, Any]], bool] = lambda _arguments: True


class Trace:
    """What a trip did: `passed` and `asked` are modules in the order of their first call."""

    def __init__(
        self, legs: tuple[Leg, ...], names: tuple[str, ...], ends: Callable[[str, Any], bool]
    ) -> None:
        self.legs, self.names, self.ends = legs, names, ends
        self.passed: dict[str, str] = {}
        self.asked: dict[str, None] = {}
        began = [leg.module for leg in legs]
        again = [n for n, module in enumerate(began) if n and module != began[n - 1] and module in began[:n]]
        self.turns: dict[str, None] = dict.fromkeys(" > ".join(began[: n + 1]) for n in again)
        self.ended = False
        self._leg = -1
        self._roots: dict[int, Any] = {}
        self._frames: dict[int, Any] = {}
        self._holding: dict[int, tuple[object, bool]] = {}
        self._stack: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("stack", default=())
        self._thread = threading.get_ident()

    def __call__(self, frame: Any, event: str, result: object) -> None:
        """Note a call, if it is of the trip; for `sys.setprofile`."""
        if self.ended or frame.f_code.co_filename == _GENERATED:
            return
        name = frame.f_globals.get("__name__", "").removeprefix(PREFIX)
        if event == "call" and frame.f_globals["__name__"] != name:
            self._called(frame, name)
        elif (
            name in self.asked.keys() - self.passed.keys()
            and id(frame) in self._frames
            and self._holds(result)
        ):
            self.passed[name] = frame.f_code.co_name

    def _called(self, frame: Any, module: str) -> None:
        way = self._way(frame, module)
        if not way:
            return
        if self._leg == len(self.legs) - 1 and self.ends(module, frame):
            self.ended = True
            return
        if threading.get_ident() == self._thread:
            self._stack.set((module, *way))
        calls_back = module != way[0] and module in way
        between = way[: way.index(module)] if calls_back else way
        is_news = any(left_out(each) == "kube" for each in way) or (calls_back and MIRRORS[1] in between)
        if is_news or left_out(module) or id(frame) in self._frames:
            return
        # Kept, so that another frame cannot have its id.
        self._frames[id(frame)] = frame
        if calls_back and not _only_reads(frame):
            self.turns[" > ".join((module, *reversed(between), f"{module}.{frame.f_code.co_name}"))] = None
        if self._holds(_arguments(frame)):
            self.passed.setdefault(module, frame.f_code.co_name)
        else:
            self.asked.setdefault(module)

    def _way(self, frame: Any, module: str) -> list[str]:
        """Return the modules on the stack down to the leg's first call; none where the call is of no leg, or begins one."""
        way, below = [], frame.f_back
        while below is not None:
            name = below.f_globals.get("__name__", "")
            if name.startswith(PREFIX):
                way.append(name.removeprefix(PREFIX))
            if id(below) in self._roots:
                return way
            below = below.f_back
        if self._begins(frame, module) or threading.get_ident() == self._thread:
            return []
        return [*way, *self._stack.get()] if self._stack.get() else []

    def _begins(self, frame: Any, module: str) -> bool:
        for number, leg in enumerate(self.legs[: self._leg + 2]):
            if (leg.module, leg.function) == (module, frame.f_code.co_name) and leg.when(_arguments(frame)):
                self._leg = max(self._leg, number)
                self._roots[id(frame)] = self._frames[id(frame)] = frame
                self.passed.setdefault(module, frame.f_code.co_name)
                return True
        return False

    def _holds(self, value: object) -> bool:
        if isinstance(value, str):
            return any(name in value for name in self.names)
        if id(value) in self._holding:
            return self._holding[id(value)][1]
        self._holding[id(value)] = value, False
        holds = any(self._holds(part) for part in _parts(value))
        if isinstance(value, list | dict | set):
            # It may hold something else by the next call.
            del self._holding[id(value)]
        else:
            self._holding[id(value)] = value, holds
        return holds


def _parts(value: object) -> tuple[object, ...]:
    """Return what a value consists of; nothing for an object that is no value."""
    if isinstance(value, tuple | list | frozenset | set):
        return tuple(value)
    if isinstance(value, dict):
        return (*value, *value.values())
    fields = [field.name for field in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
    fields += getattr(value, "__struct_fields__", ())
    return () if isinstance(value, type) else tuple(getattr(value, name, None) for name in fields)


def left_out(module: str) -> str | None:
    """Return the entry of `LEFT_OUT` that the module falls under."""
    return next((entry for entry in LEFT_OUT if module == entry or module.startswith(f"{entry}.")), None)


def _arguments(frame: Any) -> dict[str, Any]:
    code, local = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return {name: local.get(name) for name in code.co_varnames[:count] if name != "self"}


def _only_reads(frame: Any) -> bool:
    """Return whether this is a property, or an expression that an earlier call made for the one that reads it."""
    name, owner = frame.f_code.co_name, type(frame.f_locals.get("self"))
    return name == "<genexpr>" or isinstance(getattr(owner, name, None), property)


@contextlib.contextmanager
def trace(*legs: Leg, names: tuple[str, ...], ends: Callable[[str, Any], bool]) -> Iterator[Trace]:
    """Trace one trip: what calls each leg has, the names of the trip's object, and the call in the last leg that ends it."""
    traced = Trace(legs, names, ends)
    threading.setprofile(traced)
    sys.setprofile(traced)
    try:
        yield traced
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def _writes(plural: str) -> Callable[[str, Any], bool]:
    """Return what recognises the write of an object of that kind, tries of the API server's features left out."""

    def ends(module: str, frame: Any) -> bool:
        local = frame.f_locals
        is_write = module == "kube.client" and frame.f_code.co_name in ("create", "replace", "patch")
        return is_write and local["kind"].plural == plural and not local.get("dry_run")

    return ends


@contextlib.asynccontextmanager
async def _cluster(folder: Path) -> AsyncIterator[storm.Storm]:
    """Yield a cluster in virtual time, whose trips are the same on a slow machine; ended after that."""
    cluster = storm.Storm(asyncio.get_running_loop(), folder, ("n1",), ("disk-0",))
    try:
        yield cluster
    finally:
        await cluster.end()


@virtualtime.in_virtual_time
async def device_to_slice(folder: Path) -> Trace:
    """A device from the listing of an adapter to the ResourceSlice."""
    listing = Leg(module="controller.fabrics.session", function="_list")
    publish = Leg(
        module="controller.fabric_reconciler",
        function="_reconcile",
        when=lambda arguments: "publish" in repr(arguments),
    )
    async with _cluster(folder) as cluster:
        with trace(listing, publish, names=("disk-0",), ends=_writes("resourceslices")) as traced:
            await cluster.begin(0)
            await waiting.eventually(lambda: traced.ended)
    return traced


@virtualtime.in_virtual_time
async def claim_to_condition(folder: Path) -> Trace:
    """An allocated claim from the watch to its condition, by way of the attach."""
    change = Leg(
        module="controller.changes",
        function="claim_changed",
        when=lambda arguments: arguments["new"].status.allocation is not None,
    )
    reconcile = Leg(module="controller.attachments.executor", function="reconciled")
    async with _cluster(folder) as cluster:
        await cluster.begin(0)
        await waiting.until(lambda: cluster.list(kinds.SLICE), bool)
        names = ("disk-0", "c1")
        with trace(change, reconcile, names=names, ends=_writes("resourceclaims")) as traced:
            await cluster.use("disk-0", node="n1")
            await waiting.eventually(lambda: traced.ended)
    return traced


async def uevent_to_visible(folder: Path) -> Trace:
    """A uevent from the kernel to `Visible` on the attachment."""
    legs = (
        Leg(module="node.uevents.sources", function="parse"),
        Leg(module="node.discovery.devices", function="_hear"),
        Leg(module="node.discovery.devices", function="_work_off"),
        Leg(module="node.daemon", function="_reconcile"),
    )
    async with nodes.serving(folder) as node:
        await waiting.eventually(node.listening)
        await node.attach()
        await node.controller_says(connection={"port": "1", "slot": "1"})
        marks = ("SN0001", nodes.NAME, node.tree.address(1))
        with trace(*legs, names=marks, ends=_writes("deviceattachments")) as traced:
            await node.plug()
            await waiting.eventually(lambda: traced.ended)
    return traced


async def prepare_to_cdi(folder: Path) -> Trace:
    """A claim from the kubelet's Prepare to the CDI file and back with the answer."""
    call = Leg(module="node.plugin.servicers", function="NodePrepareResources")
    async with preparation._world(folder) as world:
        name = await world.claim()
        world.attached = [world.detailed("d1", name.uid)]
        claim = api_pb2.Claim(namespace=name.namespace, name=name.name, uid=name.uid)
        service = servicers.ServiceV1(world.preparer)
        with trace(call, names=(name.uid, "d1", "SN1"), ends=lambda _module, _frame: False) as traced:
            await service.NodePrepareResources(api_pb2.NodePrepareResourcesRequest(claims=[claim]), None)
        traced.ended = bool(world.cdi())
    return traced


def run(scene: Callable[[Path], Any], folder: Path) -> Trace:
    """Return the trace of a scene, which runs in a loop of its own."""
    traced = scene(folder)
    return asyncio.run(traced) if asyncio.iscoroutine(traced) else traced


TRIPS = (device_to_slice, claim_to_condition, uevent_to_visible, prepare_to_cdi)


def line(scene: Callable[[Path], Any], traced: Trace) -> str:
    """Return the row of docs/architecture.md for a trip."""
    passed = ", ".join(f"`{name}`" for name in sorted(traced.passed))
    return f"| {scene.__doc__} | {len(traced.passed)} | {passed} |"


if __name__ == "__main__":
    for each in TRIPS:
        with tempfile.TemporaryDirectory() as made:
            done = run(each, Path(made))
        rows = [line(each, done), *(f"  turns back: {turn}" for turn in done.turns)]
        print(*rows, sep="\n")  # noqa: T201 - the output of a script
