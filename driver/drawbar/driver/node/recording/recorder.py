"""The recorder of a host: it writes the tree, the events of a period, and the tree again if there were events.

    DIR/sysfs.json.gz       the tree at the start, and the files of NVIDIA's driver in /proc
    DIR/uevents.jsonl       the events, one a line: {"t": monotonic seconds, "msg": text}; absent with 0 seconds
    DIR/sysfs-end.json.gz   the tree at the end, if there were events
    DIR/recording.json      the date, the host, the counts and the omissions; written last, so a recording without it is
                            incomplete

The recorder listens to events before it reads the tree, so no change is missed; a change may appear in both. Only the owner
can read the files, because even a masked recording shows how a host is built.
"""

import asyncio
import contextlib
import datetime
import json
import os
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from drawbar.driver import errors
from drawbar.driver.node import uevents
from drawbar.driver.node.classes import users
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.errors import NodeError, UeventError
from drawbar.driver.node.inventory import files, model, pci
from drawbar.driver.node.operation import host
from drawbar.driver.node.recording import kinds, masks, tree

EVENTS_MOST = 50_000


class RecordedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One uevent.

    Attributes:
        seconds: the host's monotonic time, as in the kernel's log.
        message: the event as sent by the kernel, with a newline for each NUL.
    """

    seconds: float
    message: str


class Listener:
    """The events so far.

    Attributes:
        events: the events of recorded devices.
        others: the number of events of other devices, which are not kept.
        dropped: the number of events beyond the limit.
        overflows: the number of times that the kernel or the daemon lost events.
        broken: the error that ended the source, if it ended.
    """

    def __init__(self, most: int = EVENTS_MOST) -> None:
        self.events: list[RecordedEvent] = []
        self.others = 0
        self.dropped = 0
        self.overflows = 0
        self.broken: str | None = None
        self._most = most

    @property
    def anything(self) -> bool:
        """Return whether the tree may have changed."""
        return bool(self.events or self.dropped or self.overflows)

    async def listen(self, source: uevents.UeventSource) -> None:
        """Collect events until the source ends. Note an error of the source, and keep the events before it."""
        try:
            async for event in source.events():
                self._take(event)
        except UeventError as error:
            self.broken = str(error)

    def _take(self, event: uevents.Uevent | uevents.Overflow) -> None:
        if isinstance(event, uevents.Overflow):
            self.overflows += 1
        elif not kinds.is_heard(event.subsystem, event.devpath):
            self.others += 1
        elif len(self.events) >= self._most:
            self.dropped += 1
        else:
            self.events.append(RecordedEvent(seconds=time.monotonic(), message=_message(event)))


def _message(event: uevents.Uevent) -> str:
    pairs = "".join(f"{key}={value}\n" for key, value in event.properties.items())
    return f"{event.action}@{event.devpath}\n{pairs}"


START, END, EVENTS, SUMMARY = "sysfs.json.gz", "sysfs-end.json.gz", "uevents.jsonl", "recording.json"
_COMMAND_LINE = "/proc/cmdline"
_KERNEL_OPTION = re.compile(
    r"(pci|pcie_ports|pcie_aspm|iommu|intel_iommu|amd_iommu|arm-smmu\.[a-z_]+|memhp_default_state)=[\w,.:@/;=-]*"
)
_UNDER_WAY_SECONDS = 0.1  # for events that the kernel sent before the end
_FORMAT = 1
_GZIP = 31  # zlib's `wbits` for a gzip file; without a time, so that equal trees make equal files
_CUT_BYTES = 64  # of configuration space: the part for a reader without CAP_SYS_ADMIN
_MEMORY_BLOCK = re.compile(r"devices/system/memory/memory\d+/state")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The content and the destination of a recording.

    Attributes:
        folder: the destination; it is empty or does not exist.
        sysfs: the sysfs tree to record.
        source: the source of uevents.
        seconds: the time to listen to events; 0 records only the tree, None listens until stopped.
        masked: whether to replace serial numbers and other identifiers.
        limits: the greatest size of a recording.
    """

    folder: Path
    sysfs: Path = reader.SYSFS
    source: str = uevents.KERNEL
    seconds: float | None = 0
    masked: bool = False
    limits: tree.Limits = msgspec.field(default_factory=tree.Limits)


async def record(
    settings: Settings, stop: asyncio.Event, ready: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Record a host; return the content of `recording.json`, with the size of each file.

    Args:
        settings: the content and the destination.
        stop: ends the listening when set.
        ready: called once the tree is written and no event can be missed.

    Raises:
        UsageError: the folder cannot be used.
        SysfsError: there is no readable tree.
        UeventError: events cannot be heard.
    """
    await asyncio.to_thread(_prepare, settings)
    work = _Work(settings)
    if settings.seconds == 0:
        await asyncio.to_thread(work.take, START)
    else:
        async with uevents.listening(settings.source) as source, asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(work.listener.listen(source), name="uevents")
            await asyncio.to_thread(work.take, START)
            ready()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(settings.seconds):
                    await stop.wait()
            await asyncio.sleep(_UNDER_WAY_SECONDS)
            if work.listener.anything:
                await asyncio.to_thread(work.take, END)
            listening.cancel()
    return await asyncio.to_thread(work.finish)


def kernel_options(command_line: str) -> list[str]:
    """Return the options for PCI, IOMMUs and memory from a kernel's command line; other options may name people."""
    return [option for option in command_line.split() if _KERNEL_OPTION.fullmatch(option)]


class _Work:
    """One recording in progress. `take` and `finish` block: call them in a thread."""

    def __init__(self, settings: Settings) -> None:
        self.listener = Listener()
        self._settings = settings
        self._masks = masks.Masks() if settings.masked else None
        self._left_out = tree.Omissions()
        self._began = time.monotonic()
        self._date = datetime.datetime.now(datetime.UTC)
        self._trees: list[dict[str, Any]] = []

    def take(self, name: str) -> None:
        """Read the tree, and write it to the file of this name."""
        began = time.monotonic()
        snapshot = tree.read(os.fspath(self._settings.sysfs), self._settings.limits, self._left_out)
        proc = os.fspath(users.Host.from_sysfs(self._settings.sysfs).proc)
        driver = tree.read_proc(proc, self._settings.limits, self._left_out)
        contents = _count_contents(snapshot)
        if self._masks is not None:
            snapshot, driver = self._masks.snapshot(snapshot), self._masks.snapshot(driver)
        size = _write(self._settings.folder / name, _compress(snapshot, driver))
        self._trees.append(
            {"file": name, "bytes": size, "readInSeconds": round(time.monotonic() - began, 3), **contents}
        )

    def finish(self) -> dict[str, Any]:
        """Write the events and the summary; return the summary."""
        document = self._summary()
        _write(self._settings.folder / SUMMARY, (json.dumps(document, indent=2).encode(), b"\n"))
        return document

    def _summary(self) -> dict[str, Any]:
        real = self._settings.sysfs == reader.SYSFS
        boot_id = _boot_id() if real else None
        return {
            "format": _FORMAT,
            "drawbar": metadata.version("drawbar"),
            "date": self._date.isoformat(timespec="seconds"),
            "kernel": os.uname().release if real else None,
            "architecture": os.uname().machine if real else None,
            "kernelOptions": kernel_options(files.text(_COMMAND_LINE) or "") if real else None,
            "bootID": self._mask(boot_id) if boot_id is not None else None,
            "masked": self._settings.masked,
            "trees": self._trees,
            "uevents": self._events() if self._settings.seconds != 0 else None,
            "replaced": self._masks.counts if self._masks is not None else {},
            "leftOut": json.loads(self._mask(json.dumps(self._left_out.document()))),
        }

    def _events(self) -> dict[str, Any]:
        heard = self.listener
        lines = (
            json.dumps({"t": round(each.seconds, 4), "msg": self._mask(each.message)}) + "\n"
            for each in heard.events
        )
        return {
            "file": EVENTS,
            "bytes": _write(self._settings.folder / EVENTS, (line.encode() for line in lines)),
            "seconds": round(time.monotonic() - self._began, 1),
            "events": len(heard.events),
            "ofOtherDevices": heard.others,
            "dropped": heard.dropped,
            "overflows": heard.overflows,
            "broken": heard.broken,
        }

    def _mask(self, text: str) -> str:
        return self._masks.text(text) if self._masks is not None else text


def _prepare(settings: Settings) -> None:
    folder = settings.folder
    reader.addresses(os.fspath(settings.sysfs))  # without a tree, raise before the folder is made
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise errors.UsageError(f"{folder} is not empty: name a folder that is, or that does not exist")
    except OSError as error:
        raise _unusable(folder, error) from error


def _write(path: Path, parts: Iterable[bytes]) -> int:
    """Create the file, readable only by its owner; return its size in bytes."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(parts)
            return file.tell()
    except OSError as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, error: OSError) -> errors.UsageError:
    return errors.UsageError(f"cannot write to {path}: {error.strerror}; choose another folder for --record")


def _compress(snapshot: tree.Snapshot, proc: tree.Snapshot) -> Iterator[bytes]:
    """Yield the trees as one compressed JSON object, in parts because a large host has 100 MB.

    Each entry has a line, so that the text can be searched.
    """
    packer = zlib.compressobj(wbits=_GZIP)
    head = "{\n"
    for prefix, part in (("/proc/", proc), ("/sys/", snapshot)):
        for path in sorted(part):
            line = f"{head}{json.dumps(prefix + path)}: {json.dumps(kinds.encode(part[path]))}"
            yield packer.compress(line.encode())
            head = ",\n"
    yield packer.compress(b"\n}\n" if snapshot or proc else b"{}\n")
    yield packer.flush()


def _boot_id() -> str | None:
    try:
        return host.read_boot_id()
    except NodeError:
        return None


def _count_contents(snapshot: tree.Snapshot) -> dict[str, int]:
    """Return the number of entries of a tree, by kind."""

    def count_entries(folder: str, matches: Callable[[str], object] = lambda _: True) -> int:
        names: Iterable[str] = (path.removeprefix(folder) for path in snapshot if path.startswith(folder))
        return len({name.partition("/")[0] for name in names if matches(name.partition("/")[0])})

    return {
        "configurationsCut": sum(
            path.endswith("/config") and isinstance(entry, kinds.Content) and len(entry.data) == _CUT_BYTES
            for path, entry in snapshot.items()
        ),
        "files": sum(isinstance(entry, kinds.Content) for entry in snapshot.values()),
        "filesNotRead": sum(isinstance(entry, kinds.Unread | kinds.Refused) for entry in snapshot.values()),
        "links": sum(isinstance(entry, kinds.Link) for entry in snapshot.values()),
        "pciFunctions": count_entries("bus/pci/devices/", pci.ADDRESS.fullmatch),
        "slots": count_entries("bus/pci/slots/"),
        "cxlMemoryDevices": count_entries("bus/cxl/devices/", model.MEMDEV.fullmatch),
        "daxDevices": count_entries("bus/dax/devices/"),
        "memoryBlocks": sum(_MEMORY_BLOCK.fullmatch(path) is not None for path in snapshot),
        "iommuGroups": count_entries("kernel/iommu_groups/"),
    }
