"""The daemon's requests to the kernel: all writes to sysfs, and the reconfiguration of FPGAs.

Guarantees:

- No file is ever created: sysfs contains only files that the kernel provides.
- If the value is already set, or the object to remove is gone, the request succeeds without a write.
- A call ends by its deadline, even if the kernel hangs. The hanging write goes on in its own thread, which cannot be stopped.
- A second request equal to a hanging one waits for it. A different request for the same object is refused.

In most cases the kernel has completed the request when `write` returns. Callers check the result all the same.

Source: Documentation/ABI/testing/sysfs-bus-pci, sysfs-bus-cxl, sysfs-devices-memory; drivers/base/bus.c;
include/uapi/linux/fpga-dfl.h, drivers/fpga/dfl-fme-pr.c.
"""

import asyncio
import concurrent.futures
import contextlib
import ctypes
import errno
import fcntl
import os
import re
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, TypeVar, cast

import msgspec

from drawbar.driver.node import errors
from drawbar.driver.node.inventory import files, model

DEADLINE_SECONDS = 30.0
"""The longest wait for the kernel. To unbind a busy driver or power a slot takes a few seconds; pciehp gives up after ten."""
OUTSTANDING_MAX = 32
"""The greatest number of calls in progress, hanging ones included. Each has a thread."""

MemoryState = Literal["offline", "online", "online_movable", "online_kernel"]

Answer = TypeVar("Answer")

Ioctl = Callable[[int, int, bytes], object]
ioctl: Ioctl = fcntl.ioctl
"""The ioctl of device files; a double of the hardware replaces it in tests."""
PORT_PR = 0xB680  # DFL_FPGA_FME_PORT_PR: _IO(DFL_FPGA_MAGIC, DFL_FME_BASE + 0)
PORT_PR_STRUCT = struct.Struct("=IIIIQ")
"""struct dfl_fpga_fme_port_pr: its size, its flags, the port's number, the buffer's size and address."""

_PRIVILEGE = "run the daemon as root with CAP_SYS_ADMIN, and mount /sys writable"
_GONE = "the device is gone or does not answer; look at its link and its power"
_REMEDIES = {
    errno.EBUSY: "something still uses it; end that use, and it is tried again",
    errno.EACCES: _PRIVILEGE,
    errno.EPERM: _PRIVILEGE,
    errno.EROFS: _PRIVILEGE,
    errno.ENOENT: "this kernel does not offer it here: the device is gone, or the driver behind the file is not loaded",
    errno.ENODEV: _GONE,
    errno.ENXIO: _GONE,
    errno.EIO: _GONE,
    errno.EINVAL: "the kernel does not take this in the present state; look at its log",
    errno.ENOTTY: "the device has no means to do this",
    errno.ERANGE: "the device cannot do as much",
    errno.ENOMEM: "the kernel has no memory or no address space left for it",
    errno.ETIMEDOUT: "the hardware did not answer; look at the kernel's log",
}

_REFUSED_BITS = {
    errno.EBUSY: "a process has the card open, or it is being reconfigured: find out which (fuser), and end it",
    errno.EINVAL: "the card has no such port, or the kernel does not take this bitstream; look at its log",
    errno.EIO: "the card found the bitstream faulty or not made for it; make it again for this card",
    errno.ENOENT: "the driver of the card's ports is not loaded: load dfl-afu on this node",
    errno.ENOMEM: "the kernel has no memory for the bitstream",
}

# The form of one component of a path. No such name leads out of its directory. Slots of POWER hosts are named "UIO Slot1".
_NAME = re.compile(r"[A-Za-z0-9_][ A-Za-z0-9_.:-]*")


class CharacterDevice(msgspec.Struct, frozen=True, kw_only=True):
    """The file of a character device.

    Attributes:
        path: the path for this process.
        numbers: the major and minor number; None on a mocked host, whose numbers belong to other devices here.
    """

    path: Path
    numbers: tuple[int, int] | None


class _Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call in progress. Its future never fails: an outcome contains the error.

    Attributes:
        what: the request in words; equal words for a target mean an equal request.
        since: the time of its start, on the monotonic clock.
    """

    what: str
    since: float
    done: "concurrent.futures.Future[_Outcome]" = msgspec.field(default_factory=concurrent.futures.Future)


class _Outcome(msgspec.Struct, frozen=True, kw_only=True):
    value: object = None
    error: Exception | None = None


class _Calls:
    """The calls to the kernel. Each has a thread of its own, which may hang."""

    def __init__(self, sysfs: Path, deadline_seconds: float) -> None:
        self.sysfs = sysfs
        self._deadline_seconds = deadline_seconds
        self._calls: dict[str, _Call] = {}
        self._settings = threading.Lock()

    async def run(
        self, target: str, what: str, function: Callable[[], Answer], *, seconds: float | None = None
    ) -> Answer:
        """Run a blocking function in a thread; return its result by the deadline.

        Args:
            target: the object of the call; each object has one call at a time.
            what: the request in words, for messages; the same words for a target mean the same function.
            function: the blocking function, which raises only errors of `errors`.
            seconds: the deadline from the start of the function; None for the default.

        Raises:
            errors.KernelSilent: the function has not ended.
        """
        call = self._calls.get(target)
        if call is None:
            call = self._start(target, what, function)
        elif call.what != what:
            raise self._silence(call)
        wrapped = asyncio.wrap_future(call.done)
        try:
            allowed = self._deadline_seconds if seconds is None else seconds
            patience = max(0.0, call.since + allowed - time.monotonic())
            await asyncio.wait({wrapped}, timeout=patience)
            if not wrapped.done():
                raise self._silence(call)
            outcome = wrapped.result()
        finally:
            wrapped.cancel()  # the thread goes on, for the next caller
        if outcome.error is not None:
            raise outcome.error
        return cast("Answer", outcome.value)

    def _start(self, target: str, what: str, function: Callable[[], object]) -> _Call:
        if len(self._calls) >= OUTSTANDING_MAX:
            raise self._silence(min(self._calls.values(), key=lambda call: call.since))
        call = _Call(what=what, since=time.monotonic())
        call.done.set_running_or_notify_cancel()  # from now on it cannot be cancelled
        call.done.add_done_callback(lambda _: self._calls.pop(target))
        self._calls[target] = call
        # No thread of a pool: a pool waits for all its threads when the daemon stops.
        threading.Thread(target=_settle, args=(call, function), name=f"kernel: {target}", daemon=True).start()
        return call

    def _silence(self, call: _Call) -> errors.KernelSilent:
        return errors.KernelSilent(call.what, seconds=time.monotonic() - call.since)

    async def _write(
        self, target: str, path: str, value: str, *, already: Callable[[], bool] = lambda: False
    ) -> None:
        """Write `value` unless `already()` is true. If the kernel refuses, call `already()` again and treat true as success."""
        full = f"{self.sysfs}/{path}"

        def change() -> None:
            if already():
                return
            try:
                _write(full, value)
            except OSError as error:
                if not already():
                    raise refusal(full, value, error) from error

        await self.run(target, f"to take {value!r} for {full}", change)

    def _put(self, path: str, value: str) -> None:
        """Write a value, or raise `errors.KernelRefused`."""
        full = f"{self.sysfs}/{path}"
        try:
            _write(full, value)
        except OSError as error:
            raise refusal(full, value, error) from error

    @contextlib.contextmanager
    def _override_setting(self, path: str, value: str, *, unless: tuple[str, ...]) -> Iterator[None]:
        """Set another value of a setting of the whole host during the block, and restore it at the end.

        If the setting is absent, or has one of the values `unless`, it stays.
        """
        with self._settings:
            before = files.text(f"{self.sysfs}/{path}")
            if not before or before in unless:
                yield
                return
            self._put(path, value)
            try:
                yield
            finally:
                self._put(path, before)

    def _exists(self, path: str) -> bool:
        return os.path.lexists(f"{self.sysfs}/{path}")

    def _number(self, path: str) -> int | None:
        return files.number(f"{self.sysfs}/{path}")


class Kernel(_Calls):
    """The kernel behind one sysfs tree; safe to use from many tasks of one event loop.

    Every method raises `errors.KernelRefused` if the kernel refuses, and `errors.KernelSilent` if the kernel has not answered
    by the deadline.
    """

    def __init__(self, sysfs: Path, *, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        super().__init__(sysfs, deadline_seconds)
        # Held while a region is made and gets its targets, and for each step that removes one of several devices.
        self.changing_region = asyncio.Lock()

    async def power_slot(self, name: str, *, on: bool) -> None:
        """Power a hot-plug slot on or off. If the hot-plug driver has nothing left to switch off, that is success."""
        path = f"bus/pci/slots/{_check_name(name)}/power"
        try:
            await self._write(
                f"slot {name}", path, str(int(on)), already=lambda: self._number(path) == int(on)
            )
        except errors.KernelRefused as refused:
            # pciehp reports "Already disabled". Without a power controller, the file always reads 1.
            if on or refused.number != errno.ENODEV:
                raise

    async def unbind(self, address: str) -> None:
        """Unbind a function's driver, if it has one."""
        device = f"bus/pci/devices/{_check_name(address)}"
        await self._write(
            address, f"{device}/driver/unbind", address, already=lambda: not self._exists(f"{device}/driver")
        )

    async def probe(self, address: str) -> None:
        """Make the kernel look for a driver for a function without one. It is no error if the kernel finds none."""
        device = f"bus/pci/devices/{_check_name(address)}"
        await self._write(
            address, "bus/pci/drivers_probe", address, already=lambda: self._exists(f"{device}/driver")
        )

    async def remove(self, address: str) -> None:
        """Make the kernel forget a function and everything below it."""
        device = f"bus/pci/devices/{_check_name(address)}"
        await self._write(address, f"{device}/remove", "1", already=lambda: not self._exists(device))

    async def reset(self, address: str) -> None:
        """Reset a function by the first method in its `reset_method`, which is FLR if the function supports it."""
        await self._write(address, f"bus/pci/devices/{_check_name(address)}/reset", "1")

    async def set_vfs(self, address: str, count: int) -> None:
        """Set the number of a physical function's virtual functions. The kernel changes it only from or to 0."""
        path = f"bus/pci/devices/{_check_name(address)}/sriov_numvfs"
        await self._write(address, path, str(count), already=lambda: self._number(path) == count)

    async def set_vf_probing(self, address: str, *, on: bool) -> None:
        """Set whether the virtual functions of a physical one may get drivers."""
        path, value = f"bus/pci/devices/{_check_name(address)}/sriov_drivers_autoprobe", str(int(on))
        await self._write(address, path, value, already=lambda: files.text(f"{self.sysfs}/{path}") == value)

    async def override_driver(self, address: str, driver: str) -> None:
        """Set the only driver that may bind to a function from now on, in place of those with a matching id."""
        path = f"bus/pci/devices/{_check_name(address)}/driver_override"
        await self._write(
            address, path, _check_name(driver), already=lambda: files.text(f"{self.sysfs}/{path}") == driver
        )

    async def set_memory(self, block: str, state: MemoryState) -> None:
        """Take a memory block (`memory46`) offline or online; a block that is gone is offline."""
        folder = f"devices/system/memory/{_check_name(block)}"
        wanted = state.partition("_")[0]

        def already() -> bool:
            if state == "offline" and not self._exists(folder):
                return True
            return files.text(f"{self.sysfs}/{folder}/state") == wanted

        await self._write(block, f"{folder}/state", state, already=already)

    async def create_region(self, decoder: str) -> None:
        """Make an empty region of volatile memory below a CXL root decoder (`decoder0.0`); Linux 6.3 or newer."""
        path = f"bus/cxl/devices/{_check_name(decoder)}/create_ram_region"
        # The file shows the next name, and accepts only that name.
        name = files.text(f"{self.sysfs}/{path}")
        await self._write(decoder, path, name or "region0")

    async def delete_region(self, decoder: str, region: str) -> None:
        """Delete a region below a root decoder, with its dax devices."""
        await self._write(
            region,
            f"bus/cxl/devices/{_check_name(decoder)}/delete_region",
            region,
            already=lambda: not self._exists(f"bus/cxl/devices/{_check_name(region)}"),
        )

    async def set_region(self, region: str, attribute: model.RegionAttribute, value: int | str) -> None:
        """Set one attribute of a region. `commit` 0 unbinds its driver and frees the decoders."""
        await self._set(region, attribute, value)

    async def set_target(self, region: str, position: int, decoder: str) -> None:
        """Set the endpoint decoder at a position of a region. The last call fails if the kernel rejects the order."""
        await self._set(region, f"target{position}", decoder)

    async def set_decoder(self, decoder: str, attribute: model.DecoderAttribute, value: int | str) -> None:
        """Set one attribute of an endpoint decoder: its mode, or the size of its part of the device."""
        await self._set(decoder, attribute, value)

    async def bind_region(self, region: str) -> None:
        """Bind the region's driver to a committed region. Its dax device gets no driver: see `bind_dax`."""
        driver, path = f"bus/cxl/devices/{_check_name(region)}/driver", "bus/cxl/drivers_probe"

        def change() -> None:
            if not self._exists(driver):
                # Otherwise kmem binds at once, and the memory comes online by the host's policy.
                with self._override_setting("bus/dax/drivers_autoprobe", "0", unless=("0",)):
                    self._put(path, region)

        await self.run(region, f"to take {region!r} for {self.sysfs}/{path}", change)

    async def bind_dax(self, name: str, driver: model.DaxDriver) -> None:
        """Bind a driver to a dax device (`dax0.0`). With `kmem`, all its memory comes online as movable, or stays offline.

        The device's id is removed from the driver again, because the driver would bind to a later device of that name.
        """
        link, folder = f"{self.sysfs}/bus/dax/devices/{_check_name(name)}/driver", f"bus/dax/drivers/{driver}"

        def change() -> None:
            if files.link_name(link) == driver:
                return
            policy = "devices/system/memory/auto_online_blocks"
            with self._override_setting(policy, "online_movable", unless=("online_movable", "offline")):
                self._put(f"{folder}/new_id", name)
                self._put(f"{folder}/remove_id", name)

        await self.run(name, f"to take {name!r} for {self.sysfs}/{folder}/new_id", change)

    async def unbind_dax(self, name: str, driver: str) -> None:
        """Unbind the driver of a dax device, if it has that driver.

        If memory of `kmem` is still online, it stays with the kernel until the next boot.
        """
        link = f"{self.sysfs}/bus/dax/devices/{_check_name(name)}/driver"
        await self._write(
            name,
            f"bus/dax/drivers/{_check_name(driver)}/unbind",
            name,
            already=lambda: files.link_name(link) != driver,
        )

    async def _set(self, device: str, attribute: str, value: int | str) -> None:
        path, wanted = f"bus/cxl/devices/{_check_name(device)}/{attribute}", str(value)

        def already() -> bool:
            current = files.text(f"{self.sysfs}/{path}")
            return current == wanted or (isinstance(value, int) and files.parse_number(current) == value)

        await self._write(device, path, wanted, already=already)


def write(path: Path, value: str) -> None:
    """Write one value, or raise `errors.KernelRefused`. It blocks: call it in a thread."""
    try:
        _write(os.fspath(path), value)
    except OSError as error:
        raise refusal(os.fspath(path), value, error) from error


def reconfigure_port(engine: CharacterDevice, port: CharacterDevice, number: int, bits: memoryview) -> None:
    """Load a design into a port of a DFL card. It blocks: call it in a thread.

    Both device files are opened exclusively, so no other process can have the card open. Closing the port's file resets it.

    Args:
        engine: the card's management engine (FME).
        port: the port.
        number: the port's number on the card.
        bits: the design, in writable memory.

    Raises:
        errors.KernelRefused: a file is not the device's, a process has it open, or the kernel does not load the design.
    """
    with _open_device(port), _open_device(engine) as descriptor:
        buffer = (ctypes.c_char * len(bits)).from_buffer(bits)
        request = PORT_PR_STRUCT.pack(PORT_PR_STRUCT.size, 0, number, len(bits), ctypes.addressof(buffer))
        try:
            ioctl(descriptor, PORT_PR, request)
        except OSError as error:
            raise _load_refusal(
                f"cannot reconfigure port {number} by {engine.path}", engine, error
            ) from error


@contextlib.contextmanager
def _open_device(device: CharacterDevice) -> Iterator[int]:
    try:
        descriptor = os.open(device.path, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
    except OSError as error:
        raise _load_refusal(f"cannot open {device.path}", device, error) from error
    try:
        facts = os.fstat(descriptor)
        if device.numbers is not None and (
            not stat.S_ISCHR(facts.st_mode) or facts.st_rdev != os.makedev(*device.numbers)
        ):
            raise errors.KernelRefused(
                f"{device.path} is not the device that the kernel shows; look at the host's /dev",
                path=os.fspath(device.path),
                number=errno.ENXIO,
            )
        yield descriptor
    finally:
        os.close(descriptor)


def _load_refusal(what: str, device: CharacterDevice, error: OSError) -> errors.KernelRefused:
    number = error.errno or 0
    remedy = _REFUSED_BITS.get(number) or _REMEDIES.get(number, "look at the kernel's log")
    name = errno.errorcode.get(number, "no errno")
    return errors.KernelRefused(
        f"{what}: {os.strerror(number)} ({name}); {remedy}", path=os.fspath(device.path), number=number
    )


def refusal(path: str, value: str, error: OSError) -> errors.KernelRefused:
    """Return the error of a refused write, with the reason and the remedy."""
    number = error.errno or 0
    name = errno.errorcode.get(number, "no errno")
    remedy = _REMEDIES.get(number, "look at the kernel's log")
    return errors.KernelRefused(
        f"cannot write {value!r} to {path}: {os.strerror(number)} ({name}); {remedy}",
        path=path,
        number=number,
    )


def _settle(call: _Call, function: Callable[[], object]) -> None:
    try:
        outcome = _Outcome(value=function())
    except Exception as error:  # noqa: BLE001 - not swallowed: the waiting caller gets it
        outcome = _Outcome(error=error)
    call.done.set_result(outcome)


def _write(path: str, value: str) -> None:
    """Write as `echo value > path` does, but never create the file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, f"{value}\n".encode())
    finally:
        os.close(descriptor)


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise errors.KernelRefused(
            f"{name!r} is not the name of anything in sysfs: look where it comes from",
            path=name,
            number=errno.EINVAL,
        )
    return name
