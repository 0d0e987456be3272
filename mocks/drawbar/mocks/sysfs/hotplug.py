"""The executor of steps on a tree: first the files change, then the event is sent, as in the kernel."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

from drawbar.mocks.sysfs import kobjects, states, wire
from drawbar.mocks.sysfs.steps import Add, Beside, Bind, Change, Join, Step, Write


class Hotplug:
    """One change of a host by the holder of its lock; `state` counts the events."""

    def __init__(self, root: Path, state: states.State) -> None:
        self.root = root
        self.state = state
        # A listener that times out gets no more events of this change; the others do.
        socket_path = state.uevent_socket
        self._listeners = wire.list_listener_paths(Path(socket_path)) if socket_path is not None else ()
        # Directories are built and removed here; it must be on the tree's file system for renames.
        self._staging = root.with_name(f".{root.name}.staging")

    def build(self, objects: Iterable[kobjects.Kobject]) -> None:
        """Add devices without events, as present since boot."""
        for kobject in objects:
            kobjects.add(self.root, self._staging, kobject)
            if kobject.driver is not None:
                kobjects.bind(self.root, kobject)

    def take(self, steps: Iterable[Step]) -> None:
        """Carry out the steps in order."""
        for step in steps:
            match self._assign_device_numbers(step):
                case Add(kobject=kobject):
                    kobjects.add(self.root, self._staging, kobject)
                    self._send("add", kobject, kobject.variables(bound=False))
                case Bind(kobject=kobject):
                    kobjects.bind(self.root, kobject)
                    self._send("bind", kobject, kobject.variables(bound=True))
                case Change(kobject=kobject, variable=variable):
                    bound = (self.root / kobject.path / "driver").is_symlink()
                    extra = dict([variable] if variable else [])
                    self._send("change", kobject, {**extra, **kobject.variables(bound=bound)})
                case Join(path=path, target=target):
                    kobjects.link(self.root, path, target)
                case Write(folder=folder, files=files):
                    self._write(folder, files)
                case Beside(files=contents):
                    for path, content in contents.items():
                        if (file := find_host_file(self.root, path)) is not None:
                            file.parent.mkdir(parents=True, exist_ok=True)
                            file.write_bytes(content)

    def _assign_device_numbers(self, step: Step) -> Step:
        """Return the step with the host's device numbers."""
        if isinstance(step, Add | Bind | Change):
            return dataclasses.replace(step, kobject=self._own(step.kobject))
        return step

    def _own(self, kobject: kobjects.Kobject) -> kobjects.Kobject:
        return kobject.harmless if self.state.harmless_numbers else kobject

    def undo(self, steps: Iterable[Step]) -> None:
        """Undo the steps, last first; skip absent devices."""
        for step in reversed(tuple(steps)):
            match step:
                case Add(kobject=kobject):
                    self._remove(kobject)
                case Join(path=path):
                    (self.root / path).unlink(missing_ok=True)
                case Write(folder=folder, undone=undone):
                    self._write(folder, undone)
                case Beside(files=contents, stays=stays):
                    for path in () if stays else contents:
                        if (file := find_host_file(self.root, path)) is not None:
                            file.unlink(missing_ok=True)
                            with contextlib.suppress(OSError):
                                file.parent.rmdir()
                case Bind() | Change():
                    pass  # a driver unbinds just before its device is removed

    def part(self, kobject: kobjects.Kobject) -> None:
        """Unbind a device from its driver, if it has one; the caller must undo the driver's own devices first."""
        if not (self.root / kobject.path / "driver").is_symlink():
            return
        kobject = self._own(kobject)
        kobjects.unbind(self.root, kobject)
        # The kernel omits MODALIAS in unbind events, so that udev does not load the driver again.
        variables = {key: value for key, value in kobject.variables(bound=False).items() if key != "MODALIAS"}
        self._send("unbind", kobject, variables)

    def announce(self, action: str, kobject: kobjects.Kobject) -> None:
        """Send an event of a present device."""
        kobject = self._own(kobject)
        bound = (self.root / kobject.path / "driver").is_symlink()
        self._send(action, kobject, kobject.variables(bound=bound))

    def _write(self, folder: str, files: kobjects.Files) -> None:
        if not (self.root / folder).is_dir():
            return
        for name, attribute in files.items():
            kobjects.write(self.root / folder / name, attribute)

    def _remove(self, kobject: kobjects.Kobject) -> None:
        """Unbind and remove a device; skip it if absent, because an attach may have been interrupted."""
        if not (self.root / kobject.path).exists():
            return
        self.part(kobject)
        kobjects.remove(self.root, self._staging, kobject)
        self._send("remove", kobject, kobject.variables(bound=False))

    def _send(self, action: str, kobject: kobjects.Kobject, variables: dict[str, str]) -> None:
        self.state = dataclasses.replace(self.state, seqnum=self.state.seqnum + 1)
        if not self._listeners:
            return
        devpath = "/" + kobject.path
        head = {"ACTION": action, "DEVPATH": devpath, "SUBSYSTEM": kobject.subsystem}
        message = wire.encode(action, devpath, {**head, **variables, "SEQNUM": str(self.state.seqnum)})
        self._listeners = tuple(path for path in self._listeners if wire.send(path, message))


def find_host_file(root: Path, path: str) -> Path | None:
    """Return the path of a file of the host's /proc or /dev, beside its tree; None if that is this machine's own."""
    folder = root.absolute().parent
    return None if folder == Path("/") else folder / path


@contextlib.contextmanager
def changing(root: Path) -> Iterator[Hotplug]:
    """Yield one change under the host's lock; save its state at the end, even after a refusal."""
    with states.locking(root):
        before = states.load(root)
        change = Hotplug(root, before)
        try:
            yield change
        finally:
            if change.state != before:
                states.save(root, change.state)
