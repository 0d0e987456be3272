"""NVMe disks. The kernel refuses an exclusive open of a disk while a user inside the kernel has it."""

import errno
import functools
import logging
import os
from pathlib import Path

from drawbar.driver.node import errors, kernel
from drawbar.driver.node.classes import generic, nvme_erase
from drawbar.driver.node.classes.users import Host
from drawbar.driver.node.inventory import model
from drawbar.fabric.classes import DeviceClass

log = logging.getLogger(__name__)


class Nvme(generic.Generic, frozen=True, kw_only=True):
    """See `generic.Generic`."""

    device_class: DeviceClass = DeviceClass.NVME
    class_codes: tuple[str, ...] = ("010802", "010803")  # I/O controller, administrative controller
    needs_driver: bool = True
    needs_files: bool = True

    async def quiesce(self, kernel: kernel.Kernel, host: Host, card: model.Card) -> None:
        """Flush the caches of the kernel and of the disk.

        Raises:
            errors.KernelRefused: a user inside the kernel has the disk: a mount, md, dm, swap, ZFS, an NVMe target.
        """
        for node in card.device_nodes:
            if node.block:
                path = host.dev / node.path.removeprefix("/dev/")
                await kernel.run(node.path, f"to flush {node.path}", functools.partial(_flush, path, node))

    def eraser(self, host: Host, card: model.Card) -> generic.Eraser | None:
        """Return the sanitize or format of the disk (`nvme_erase`), or None on a mocked host, whose disks keep no data."""
        if host.dev != _DEV:
            return None
        controller = next((node for node in card.device_nodes if _is_controller(node)), None)
        if controller is None:
            return functools.partial(_refuse_without_controller, card)
        path = host.dev / controller.path.removeprefix("/dev/")
        serials = (each.serial for function in card.functions for each in function.nvme)
        return nvme_erase.eraser(path, controller, next(serials, None) or card.serial or "")


_DEV = Path("/dev")


def _is_controller(node: model.DeviceNode) -> bool:
    return node.subsystem == "nvme" and not node.block


def _refuse_without_controller(card: model.Card, report: generic.Report) -> None:
    del report
    driver = card.first.driver
    raise errors.NotCleaned(
        f"{card.address} is not erased, so no other user gets it: its driver {driver} has no NVMe controller; unbind it, "
        "clear driver_override, and bind nvme"
    )


def _flush(path: Path, node: model.DeviceNode) -> None:
    try:
        # An exclusive open fails with EBUSY for every user inside the kernel, even one that sysfs and proc do not show.
        descriptor = os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # without the host's /dev; the driver flushes the caches too, at a regular unbind
    except OSError as error:
        if error.errno != errno.EBUSY:
            log.warning("cannot open a disk to flush it: %s", error, extra={"path": node.path})
            return
        raise errors.KernelRefused(
            f"{node.path} is in use inside the kernel (a mount, md, dm, swap, ZFS or an NVMe target); end that",
            path=node.path,
            number=errno.EBUSY,
        ) from error
    try:
        os.fsync(descriptor)
    except OSError as error:
        # No process has the disk open, so none waits for this data. A broken disk must be detachable as well.
        log.warning("a disk would not flush: %s", error, extra={"path": node.path})
    finally:
        os.close(descriptor)
