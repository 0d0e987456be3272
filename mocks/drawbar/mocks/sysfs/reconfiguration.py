"""The ioctl for loading a design into a port of a mocked DFL card, for code in the same process.

Source: drivers/fpga/dfl-fme-pr.c, dfl-fme-mgr.c, fpga-mgr.c.
"""

import ctypes
import dataclasses
import errno
import os
import re
import struct
import threading
from pathlib import Path

from drawbar.mocks.sysfs import kobjects, states
from drawbar.mocks.sysfs.kobjects import Attribute, readable

_PORT_PR = 0xB6 << 8 | 0x80  # _IO(DFL_FPGA_MAGIC, DFL_FME_BASE + 0)
_STRUCT = struct.Struct("=IIIIQ")  # struct dfl_fpga_fme_port_pr
_ENGINE = re.compile(r"dfl-fme\.\d+")
_WAIT_SECONDS = 60.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A loaded design: the device file, the port, and the design's bytes."""

    device: Path
    port: int
    design: bytes


class PortReconfiguration:
    """A stand-in for `fcntl.ioctl`: it answers DFL_FPGA_FME_PORT_PR for the mocked hosts of this process.

    It gets the same as the kernel: a descriptor, a number, and a structure with an address in this process. A device
    file is a plain file in the folder `dev` beside a tree `sys`; `device_files` makes them.

    Attributes:
        refuses: the errno of a refusal by the kernel, before it touches the card; 0 for none.
        finds: the card's error in a design, in the words of `status`; empty for none.
        state: the manager's state after a correct design.
        gate: an event that a load waits for, for a minute at most; None to end at once.
        loaded: the loaded designs, in order.
    """

    def __init__(
        self,
        *,
        refuses: int = 0,
        finds: str = "",
        state: str = "operating",
        gate: threading.Event | None = None,
    ) -> None:
        self.refuses, self.finds, self.state, self.gate = refuses, finds, state, gate
        self.loaded: list[Load] = []

    def __call__(self, descriptor: int, request: int, argument: bytes) -> int:
        """Act as ioctl(2): return 0 or raise OSError."""
        device = Path(f"/proc/self/fd/{descriptor}").readlink()
        if request != _PORT_PR or not _ENGINE.fullmatch(device.name):
            raise _error(errno.ENOTTY)
        size, flags, port, length, address = _STRUCT.unpack(argument[: _STRUCT.size])
        if self.refuses:
            raise _error(self.refuses)
        root = device.parents[1] / "sys"
        engine = (root / "bus/platform/devices" / device.name).resolve()
        count = int(_text(engine / "ports_num") or 0)
        regions = tuple(engine.glob("dfl-fme-region.*/fpga_region/region*"))
        if size < _STRUCT.size or flags or port >= count or len(regions) <= port:
            raise _error(errno.EINVAL)
        design = ctypes.string_at(address, length)
        (manager,) = engine.glob("dfl-fme-mgr.*/fpga_manager/fpga*")
        _show(root, manager, "write")
        if self.gate is not None and not self.gate.wait(_WAIT_SECONDS):
            raise _error(errno.ETIMEDOUT)
        if self.finds:
            _show(root, manager, "write complete error", self.finds)
            raise _error(errno.EIO)
        _show(root, manager, self.state)
        self.loaded.append(Load(device=device, port=port, design=design))
        return 0


def device_files(root: Path, instance: int = 0) -> None:
    """Make the device files of a host's FPGA of that number, beside its tree."""
    folder = root.parent / "dev"
    folder.mkdir(exist_ok=True)
    for name in ("dfl-fme", "dfl-port"):
        (folder / f"{name}.{instance}").touch()


def _show(root: Path, manager: Path, state: str, status: str = "") -> None:
    with states.locking(root):
        if not manager.is_dir():
            raise _error(errno.ENODEV)
        kobjects.write(manager / "state", readable(state))
        kobjects.write(manager / "status", readable(status) if status else Attribute())


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except FileNotFoundError as error:
        raise _error(errno.ENODEV) from error


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
