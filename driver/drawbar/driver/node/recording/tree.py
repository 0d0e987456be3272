"""The reader of the part of a sysfs tree that belongs to PCI and CXL devices.

It begins with the kernel's lists (buses, classes, slots, memory blocks, IOMMU groups), follows each link once and then
descends. So it ends even if links form a loop. A file that vanishes or cannot be read is noted, and is not an error. If
devices come and go during the reading, a snapshot shows some of them in part.
"""

import dataclasses
import enum
import os
import re
import stat
from typing import Any

import msgspec

from drawbar.driver.node.discovery import slowreads
from drawbar.driver.node.inventory import files, model, pci
from drawbar.driver.node.recording import kinds, timedreads

_NAMED_MOST = 200


class Reason(enum.StrEnum):
    """The reason for an omission."""

    NEVER_READ = "neverRead"
    """Reading could disturb a device, or reveal a key."""
    NOT_KNOWN = "notKnownHarmless"
    """A driver added the attribute."""
    ASLEEP = "deviceAsleep"
    """Reading would power the device up."""
    TOO_LARGE = "tooLarge"
    NO_ROOM = "recordingFull"
    REFUSED = "refusedByKernel"
    """The kernel answered with an errno, which a loaded recording repeats."""
    HANGS = "notFinishedByKernel"
    """The kernel did not finish a read of this file, or of another one in its directory."""
    VANISHED = "vanished"
    """The file vanished during the recording."""


@dataclasses.dataclass(slots=True)
class _Kind:
    count: int = 0
    names: dict[str, None] = dataclasses.field(default_factory=dict)


class Omissions:
    """The omissions of one or several trees."""

    def __init__(self) -> None:
        self._kinds: dict[Reason, _Kind] = {}

    def note(self, reason: Reason, name: str) -> None:
        """Note an omission; `name` is its path, or the name of all files of its kind."""
        kind = self._kinds.setdefault(reason, _Kind())
        kind.count += 1
        if len(kind.names) < _NAMED_MOST:
            kind.names[name] = None

    def count(self, reason: Reason) -> int:
        """Return the number of omissions for this reason."""
        return self._kinds[reason].count if reason in self._kinds else 0

    def names(self, reason: Reason) -> tuple[str, ...]:
        """Return the first names for this reason, in order of appearance; at most 200."""
        return tuple(self._kinds[reason].names) if reason in self._kinds else ()

    def document(self) -> dict[str, Any]:
        """Return the omissions by reason, as JSON."""
        return {
            reason.value: {"count": kind.count, "names": list(kind.names)}
            for reason, kind in self._kinds.items()
        }


_LEVELS = 3  # below a known device: the depth at which the inventory looks for device files
_ROOT_COMPLEX = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_CONFIG_BYTES = 4096
_READABLE = 0o444
_SHORT_BYTES = 64
_LINKS_ABOVE = frozenset({"subsystem", "driver"})
_FIRMWARE, _SLOT_NUMBER = "firmware_node", "sun"
_MEMORY = "devices/system/memory"
_GROUPS = "kernel/iommu_groups"
_BTRFS = "fs/btrfs"
_SLOTS = "bus/pci/slots"
_MODULES = "module"
_NVIDIA = "driver/nvidia/gpus"
_GPUS_MAX = 256


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The greatest size of a recording.

    Attributes:
        file_bytes: the bytes of one file; sysfs attributes have at most one page, binary ones can be longer.
        tree_bytes: the bytes of the contents of one tree.
        entries: the number of files and links of one tree.
    """

    file_bytes: int = 64 * 1024
    tree_bytes: int = 128 * 1024 * 1024
    entries: int = 1_000_000


Snapshot = dict[str, kinds.Entry]
"""The entries by path below the root, without a leading slash."""


def read(root: str, limits: Limits, left_out: Omissions) -> Snapshot:
    """Return the snapshot of the tree at `root`. It blocks: call it in a thread.

    Args:
        root: the path of sysfs.
        limits: the greatest size; the rest is omitted.
        left_out: takes note of each omission.
    """
    walk = _Walk(root, limits, left_out)
    walk.buses()
    walk.classes()
    walk.devices()
    walk.folders()
    return walk.found


def read_proc(proc: str, limits: Limits, left_out: Omissions) -> Snapshot:
    """Return the files of NVIDIA's driver in the proc file system at `proc`. The other arguments are those of `read`."""
    slow, snapshot = slowreads.SlowReads(), Snapshot()
    for address in files.names(f"{proc}/{_NVIDIA}")[:_GPUS_MAX]:
        path = f"{_NVIDIA}/{address}/information"
        text = slow.text(f"{proc}/{path}") if pci.ADDRESS.fullmatch(address) else None
        if text is None:
            left_out.note(Reason.REFUSED, f"proc/{path}")
        elif len(text) > limits.file_bytes:
            left_out.note(Reason.TOO_LARGE, f"proc/{path}")
        else:
            snapshot[path] = kinds.Content(data=text.encode(), mode=_READABLE)
    return snapshot


class _Walk:
    """One walk through a tree; `found` has the entries so far."""

    def __init__(self, root: str, limits: Limits, left_out: Omissions) -> None:
        self.found: Snapshot = {}
        self._root = root
        self._limits = limits
        self._left_out = left_out
        self._bytes = 0
        self._same: dict[tuple[bytes, int], kinds.Content] = {}
        self._targets: dict[str, None] = {}
        self._visited: set[str] = set()
        self._reads = timedreads.TimedReads()
        self._hanging: set[str] = set()
        """The directories of files whose reading hangs."""

    # --- where to begin ---

    def buses(self) -> None:
        for bus in kinds.BUSES:
            self._record_links(f"bus/{bus}/devices")
            for driver in self._folders(f"bus/{bus}/drivers"):
                self._links_and_triggers(f"bus/{bus}/drivers/{driver}")
        for slot in self._folders(_SLOTS):
            self._visit(f"{_SLOTS}/{slot}", kinds.EVERYTHING)

    def classes(self) -> None:
        for name in kinds.CLASSES:
            self._record_links(f"class/{name}")

    def devices(self) -> None:
        """Read the directories behind the kernel's lists: each root complex as a whole, other devices one by one."""
        for target in self._targets:
            parts = target.split("/")
            top = next((index for index, part in enumerate(parts) if _ROOT_COMPLEX.fullmatch(part)), None)
            self._reach("/".join(parts[: top + 1]) if top is not None else target)
        for target in self._targets:
            self._reach(target)  # devices below a function that are too deep for the first pass

    def folders(self) -> None:
        self._visit(_MEMORY, kinds.MEMORY)
        for group in self._folders(_GROUPS):
            self._visit(f"{_GROUPS}/{group}", kinds.EVERYTHING)
        for module in self._folders(_MODULES):
            self._keep(f"{_MODULES}/{module}", kinds.Folder())
        for identity in self._folders(_BTRFS):
            self._links_and_triggers(f"{_BTRFS}/{identity}/devices")

    # --- going down ---

    def _record_links(self, folder: str) -> None:
        """Record a directory of links to devices, and note their targets."""
        for entry in self._scan(folder) or ():
            target = files.link_target(entry.path) if entry.is_symlink() else None
            below = files.resolve_below_root(target) if target is not None else None
            if target is not None and below is not None and kinds.concerns(below):
                self._keep(f"{folder}/{entry.name}", kinds.Link(target=target))
                self._targets[below] = None
        self._keep_folder(folder)

    def _links_and_triggers(self, folder: str) -> None:
        for entry in self._scan(folder) or ():
            path = f"{folder}/{entry.name}"
            if entry.is_symlink():
                self._link(path)
            elif (
                entry.is_file(follow_symlinks=False)
                and (status := _status(self._root, path, self._left_out)) is not None
            ):
                self._keep(path, _make_unread(status))

    def _reach(self, path: str) -> None:
        """Record a device, with the subsystem, driver and uevent of each directory above it."""
        if path in self._visited or not kinds.concerns(path):
            return
        parts = path.split("/")
        for depth in range(2, len(parts)):
            above = "/".join(parts[:depth])
            if above not in self._visited:
                self._record_shallow(above)
        self._visit(path)

    def _record_shallow(self, path: str) -> None:
        for entry in self._scan(path) or ():
            below = f"{path}/{entry.name}"
            if below in self.found:
                continue
            if entry.is_symlink() and entry.name in _LINKS_ABOVE:
                self._link(below)
            elif entry.name == "uevent":
                self._file(below, kinds.STRANGE, asleep=False)

    def _visit(self, path: str, rule: kinds.Rule | None = None) -> None:
        """Record a directory and its content by this rule, or by the rule of its subsystem."""
        self._descend(path, around=kinds.STRANGE, forced=rule, levels=_LEVELS)

    def _descend(self, path: str, *, around: kinds.Rule, forced: kinds.Rule | None, levels: int) -> None:
        listed = self._scan(path) if path not in self._visited else None
        self._visited.add(path)
        if listed is None:
            return
        before = len(self.found)
        rule = forced or self._rule(path, listed, around)
        levels = _LEVELS if rule.listed else levels
        asleep = _is_asleep(f"{self._root}/{path}", listed)
        for entry in listed:
            below = f"{path}/{entry.name}"
            if entry.is_symlink():
                self._link(below)
                if entry.name == _FIRMWARE:
                    self._slot_number(below)
            elif not entry.is_dir(follow_symlinks=False):
                self._file(below, rule, asleep=asleep)
            elif asleep and entry.name in kinds.WAKING:
                self._left_out.note(Reason.ASLEEP, below)
            elif levels > 0 and not kinds.is_skipped(entry.name, rule):
                self._descend(below, around=rule, forced=None, levels=levels - 1)
        if len(self.found) == before:
            self._keep(path, kinds.Folder())

    def _rule(self, path: str, listed: list[os.DirEntry[str]], around: kinds.Rule) -> kinds.Rule:
        """Return the rule of the directory's subsystem. Without a subsystem, it groups attributes or devices."""
        names = {entry.name for entry in listed}
        if "subsystem" in names:
            return kinds.rule(files.link_name(f"{self._root}/{path}/subsystem") or "")
        is_group = "uevent" not in names and around.has_group(path.rpartition("/")[2])
        return kinds.EVERYTHING if is_group else kinds.STRANGE

    # --- single things ---

    def _slot_number(self, link: str) -> None:
        """Record the firmware's number of the slot below a port, and nothing else of the firmware's objects."""
        target = files.link_target(f"{self._root}/{link}") or ""
        path = os.path.normpath(f"{link.rpartition('/')[0]}/{target}/{_SLOT_NUMBER}")
        if not path.startswith("..") and os.path.isfile(f"{self._root}/{path}"):  # noqa: PTH113 - see above
            status = _status(self._root, path, self._left_out)
            if status is not None:
                self._content(path, status, most=self._limits.file_bytes)

    def _link(self, path: str) -> None:
        target = files.link_target(f"{self._root}/{path}")
        if target is None:
            self._left_out.note(Reason.VANISHED, path)
        else:
            self._keep(path, kinds.Link(target=target))

    def _file(self, path: str, rule: kinds.Rule, *, asleep: bool) -> None:
        name = path.rpartition("/")[2]
        reads = rule.reads(name) and not kinds.is_never_read(name)
        if not reads and not rule.listed:
            return
        status = _status(self._root, path, self._left_out)
        if status is None:
            return
        reason = None
        if kinds.is_never_read(name):
            reason = Reason.NEVER_READ
        elif not rule.reads(name):
            reason = Reason.NOT_KNOWN
        elif asleep and name in kinds.WAKING:
            reason = Reason.ASLEEP
        if not status.st_mode & _READABLE:
            self._keep(path, _make_unread(status))
        elif reason is not None:
            self._left_out.note(reason, path if reason is Reason.ASLEEP else name)
            self._keep(path, _make_unread(status))
        else:
            self._content(path, status, most=_CONFIG_BYTES if name == "config" else self._limits.file_bytes)

    def _content(self, path: str, status: os.stat_result, *, most: int) -> None:
        folder = path.rpartition("/")[0]
        try:
            data = None if folder in self._hanging else self._reads.read(f"{self._root}/{path}", most)
        except OSError as error:
            if os.path.lexists(f"{self._root}/{path}"):
                self._left_out.note(Reason.REFUSED, f"{path}: {error.strerror}")
                self._keep(path, kinds.Refused(number=error.errno or 0))
            else:
                self._left_out.note(Reason.VANISHED, path)
            return
        if data is None:
            self._hanging.add(folder)
            self._omit(path, status, Reason.HANGS)
            return
        if len(data) > most:
            self._omit(path, status, Reason.TOO_LARGE)
            return
        if self._bytes + len(data) > self._limits.tree_bytes:
            self._omit(path, status, Reason.NO_ROOM)
            return
        self._bytes += len(data)
        content = kinds.Content(data=data, mode=stat.S_IMODE(status.st_mode))
        # Thousands of functions have equal attributes, so equal short contents share one object.
        alike = (data, content.mode)
        self._keep(path, self._same.setdefault(alike, content) if len(data) <= _SHORT_BYTES else content)

    def _omit(self, path: str, status: os.stat_result, reason: Reason) -> None:
        self._left_out.note(reason, path)
        self._keep(path, _make_unread(status))

    def _keep_folder(self, path: str) -> None:
        """Record that a directory exists: a missing directory differs from an empty one."""
        if os.path.isdir(f"{self._root}/{path}"):  # noqa: PTH112 - as everywhere in this package, paths are str
            self._keep(path, kinds.Folder())

    def _keep(self, path: str, entry: kinds.Entry) -> None:
        if len(self.found) >= self._limits.entries and path not in self.found:
            self._left_out.note(Reason.NO_ROOM, path)
        else:
            self.found[path] = entry

    def _folders(self, path: str) -> list[str]:
        self._keep_folder(path)
        return [entry.name for entry in self._scan(path) or () if entry.is_dir(follow_symlinks=False)]

    def _scan(self, path: str) -> list[os.DirEntry[str]] | None:
        """Return the entries of a directory by name, without hidden files, or None if it cannot be read."""
        try:
            with os.scandir(f"{self._root}/{path}") as listed:
                return sorted(
                    (entry for entry in listed if not entry.name.startswith(".")), key=lambda each: each.name
                )
        except FileNotFoundError:
            return None
        except OSError as error:
            self._left_out.note(Reason.REFUSED, f"{path}: {error.strerror}")
            self._keep(path, kinds.Refused(number=error.errno or 0))
            return None


def _is_asleep(folder: str, listed: list[os.DirEntry[str]]) -> bool:
    state = f"{folder}/power_state"
    return any(entry.name == "power_state" for entry in listed) and files.text(state) in model.ASLEEP


def _status(root: str, path: str, left_out: Omissions) -> os.stat_result | None:
    try:
        return os.lstat(f"{root}/{path}")
    except OSError:
        left_out.note(Reason.VANISHED, path)
        return None


def _make_unread(status: os.stat_result) -> kinds.Unread:
    return kinds.Unread(mode=stat.S_IMODE(status.st_mode), size=status.st_size)
