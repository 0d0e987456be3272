"""Does something with claims and is killed at the n-th step of it: run by `test_prepare_crashes.py`, once per scenario.

A step is the return from one of the operating system's file functions, in whatever thread, except those that only look,
or a coroutine of ours that begins or is resumed. So every await point and every file operation is one, with nothing added
to the product: the interpreter's profiler counts.

On standard input come lines `N SCENARIO FOLDER`; a fork of this process, which has no threads, does each. The answer is
`killed`, or the number of steps if there were fewer.
"""

import asyncio
import inspect
import os
import signal
import sys
import threading
from pathlib import Path

from drawbar.driver.api import attachments, meta
from drawbar.driver.node import claim_versions, classes
from drawbar.driver.node.discovery import reader as tree_reader
from drawbar.driver.node.plugin import servicers
from drawbar.driver.node.preparation import cdifiles, holders, limits, lookup, metadata, preparer, store

DRIVER = "drawbar.dev"
SERIALS = {"d1": "SN1", "d2": "SN2"}
OURS = f"{os.sep}drawbar{os.sep}driver{os.sep}node{os.sep}"
MODULES = {"posix", "_io", "fcntl"}
LOOKS = {
    "stat",
    "lstat",
    "fstat",
    "scandir",
    "listdir",
    "fspath",
    "urandom",
    "getpid",
    "read",
    "pread",
    "lseek",
    "fileno",
    "readline",
}
SUSPENDS = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def attachment(device, uid, address, boot_id):
    """Return a complete attachment, ready for a Prepare."""
    at = "2026-01-01T00:00:00Z"
    node = attachments.NodeReport(
        pci_address=address, boot_id=boot_id, claim_uid=uid, allocation_timestamp=at
    )
    conditions = tuple(
        meta.Condition(type=name, status="True") for name in (attachments.ATTACHED, attachments.VISIBLE)
    )
    claim = attachments.ClaimReference(namespace="ns", name=uid, uid=uid, requests=("r",), devices=1)
    return attachments.DeviceAttachment(
        metadata=meta.ObjectMeta(name=f"fab.{device}.{uid}"),
        spec=attachments.AttachmentSpec(
            fabric="fab",
            device_id=device,
            driver=DRIVER,
            pool="p",
            device=device,
            node_name="n",
            host_id="h",
            identity=attachments.Identity(device_class="nvme", serial=SERIALS[device]),
            claim=claim,
            allocation_timestamp=at,
        ),
        status=attachments.AttachmentStatus(conditions=conditions, node=node),
    )


# Each claim with the device that it has; the last one is for a device that the first one has.
CLAIMS = {"u1": "d1", "u2": "d2", "u3": "d1"}


def claim(uid):
    return servicers.ClaimName(namespace="ns", name=uid, uid=uid)


def make_preparer(folder, inventory, host, boot_id="boot-1"):
    """Return an instance on the files in the folder, and what it released."""

    def address(device):
        return inventory.by_serial(SERIALS[device]).address

    finder = lookup.Finder(
        driver=DRIVER,
        node_name="n",
        boot_id=boot_id,
        attached=lambda: [
            attachment(device, uid, address(device), boot_id) for uid, device in CLAIMS.items()
        ],
        card=lambda attachment: inventory.card_of(address(attachment.spec.device)),
        host=host,
    )
    files = store.Store(cdifiles.CdiFiles(folder / "cdi", DRIVER), folder)
    released = []
    versions = claim_versions.Served(None)
    versions.known.set()
    versions.modern.set()
    instance = preparer.Preparer(
        reader=claim_versions.Reader(None, driver=DRIVER, node_name="n", versions=versions),
        finder=finder,
        held_by=holders.Holders(files),
        described=metadata.Files(folder, DRIVER, enabled=False),
        boot_id=boot_id,
        released=lambda pool, device: released.append((pool, device)),
        waits=limits.Limits(late_device_seconds=0),
    )
    return instance, released


class Killer:
    """Counts steps once armed, and ends the process at one of them."""

    def __init__(self, step):
        self.step, self.count, self.armed = step, 0, False

    def __call__(self, frame, event, argument):
        if self.armed and self._is_step(frame, event, argument):
            self.count += 1
            if self.count == self.step:
                os.kill(os.getpid(), signal.SIGKILL)

    @staticmethod
    def _is_step(frame, event, argument):
        if event == "c_return" and argument.__name__ not in LOOKS:
            owner = getattr(argument, "__self__", None)
            return (argument.__module__ or type(owner).__module__) in MODULES
        return event == "call" and bool(frame.f_code.co_flags & SUSPENDS) and OURS in frame.f_code.co_filename


async def scenario(name, instance, killer):
    match name:
        case "prepare":
            await instance.restore()
            killer.armed = True
            await instance.prepare(claim("u1"))
        case "unprepare":
            await instance.restore()
            killer.armed = True
            await instance.unprepare(claim("u1"))
        case "replace":
            # Two claims of one moment: what one gives up the other does not get.
            await instance.restore()
            killer.armed = True
            await asyncio.gather(instance.prepare(claim("u2")), instance.unprepare(claim("u1")))
        case "restore" | "reboot":
            killer.armed = True
            await instance.restore()
    killer.armed = False


def child(step, name, folder, inventory, host):
    killer = Killer(step)
    threading.setprofile(killer)
    sys.setprofile(killer)
    instance, _ = make_preparer(folder, inventory, host, boot_id="boot-2" if name == "reboot" else "boot-1")
    asyncio.run(scenario(name, instance, killer))
    sys.setprofile(None)
    return killer.count


def main(sysfs):
    inventory, host = tree_reader.read(Path(sysfs)), classes.Host.from_sysfs(Path(sysfs))
    for line in sys.stdin:
        step, name, folder = line.split(maxsplit=2)
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(writer, str(child(int(step), name, Path(folder.strip()), inventory, host)).encode())
            os._exit(0)
        os.close(writer)
        _, status = os.waitpid(pid, 0)
        with open(reader, encoding="ascii") as pipe:  # noqa: PTH123 - a descriptor
            steps = pipe.read()
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            steps = "killed"
        sys.stdout.write(f"{steps or 'failed'}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
