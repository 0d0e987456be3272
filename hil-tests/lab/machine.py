"""A guest's hardware, and QEMU's command line for it.

The root ports are native PCIe hot-plug ports (pciehp), since that is what a chassis is behind; the CXL host bridge has
root ports of its own. Everything else of the machine is what the lab itself needs.

Source: docs/system/devices/cxl.rst and docs/pcie.txt of QEMU 7.2.
"""

import base64
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from lab import packages

CHANNEL = "drawbar.lab"
SUBSYSTEM = "subsystem"
PAIRED_DEVICE = 0x10
PAIRED_SLOTS = (11, 12)
"""The first device on bus 0 whose functions are two ports, and the numbers that the firmware gives to their slots."""
PROCESSORS = "1"
"""Not two: while one of them maps a device that was plugged in, QEMU 7.2 (tcg) may take the other's write to any device's
register, its own timer's included, for one to another device. The guest hangs then, or QEMU crashes: docs/lab.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A virtual machine.

    Attributes:
        name: its host name, and the name of its node.
        ports: how many PCIe root ports it has, `port-1` and so on, in slots of these numbers.
        cxl_ports: how many CXL root ports, `cxl-1` and so on, in slots 101 and so on.
        memory_mib: its memory; programs from the overlay live there too.
        accelerator: `tcg` works everywhere.
        uuid: the identity that its firmware reports; None: something of QEMU's.
        newer: it has QEMU 10.0 and Linux 6.12 of Debian's backports, and so volatile CXL memory and `igb`.
        paired_ports: it has two devices besides whose functions are two root ports each. Of `pair-1` and `pair-2`, with a
            network card each, the firmware numbers the slots, 11 and 12. `pair-3` and `pair-4`, in slots 13 and 14, are
            hot-plug ports.
    """

    name: str
    ports: int = 4
    cxl_ports: int = 0
    memory_mib: int = 1024
    accelerator: str = "tcg"
    uuid: str | None = None
    newer: bool = False
    paired_ports: bool = False

    @property
    def processor(self) -> str:
        """Return the model of its processor."""
        if self.accelerator != "tcg":
            return "host"
        # Linux refuses to commit a region of CXL memory where it sees a hypervisor (ENXIO): it could not flush caches.
        return "max,-hypervisor" if self.newer else "max"

    @property
    def port_names(self) -> tuple[str, ...]:
        """Return QEMU's names of the root ports, by which a device says where it is plugged in."""
        return tuple(f"port-{number}" for number in range(1, self.ports + 1))

    @property
    def cxl_port_names(self) -> tuple[str, ...]:
        """Return QEMU's names of the CXL root ports."""
        return tuple(f"cxl-{number}" for number in range(1, self.cxl_ports + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePaths:
    """The paths of the sockets and logs of one machine.

    Attributes:
        monitor: QMP, for the lab and the tests.
        fabric: QMP again, for a fabric adapter: a QMP socket serves one client.
        channel: the link to the agent.
        console: the serial console; what it says is in `log` too.
        errors: what QEMU itself says.
        disk: what of the guest outlives a reboot: an ext4 file system for /var/lib/kubelet.
        firmware: an ACPI table, of a machine with paired ports.
    """

    monitor: Path
    fabric: Path
    channel: Path
    console: Path
    log: Path
    errors: Path
    disk: Path
    firmware: Path

    @classmethod
    def from_folders(cls, folder: Path, logs: Path, name: str) -> "MachinePaths":
        """Return the paths of a machine of this name."""
        return cls(
            monitor=folder / f"{name}.qmp",
            fabric=folder / f"{name}.fabric.qmp",
            channel=folder / f"{name}.link",
            console=folder / f"{name}.console",
            log=logs / f"{name}.console.log",
            errors=logs / f"{name}.qemu.log",
            disk=folder / f"{name}.disk",
            firmware=folder / f"{name}.aml",
        )


def command(
    machine: Machine,
    paths: MachinePaths,
    *,
    qemu: packages.Qemu,
    kernel: packages.Kernel,
    initrd: Path,
    agent: str,
) -> list[str]:
    """Return QEMU's command line; the guest runs the shell command `agent`, and ends when it ends."""
    return [
        # QEMU is killed with the process that started it, however that ends.
        *("setpriv", "--pdeathsig", "KILL", "--"),
        *(
            qemu.program,
            *(word for path in qemu.data for word in ("-L", str(path))),
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-name",
            machine.name,
        ),
        *("-accel", machine.accelerator, "-cpu", machine.processor),
        *("-smp", PROCESSORS, "-m", f"{machine.memory_mib}M,maxmem=8G,slots=4"),
        *("-machine", "q35,cxl=on" if machine.cxl_ports else "q35"),
        *(("-uuid", machine.uuid) if machine.uuid else ()),
        *("-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"),
        *("-kernel", str(kernel.image), "-initrd", str(initrd), "-append", _kernel_arguments(machine, agent)),
        *_files(paths),
        *_sockets(paths),
        *_ports(machine),
        *(_paired_ports(paths) if machine.paired_ports else ()),
    ]


def _kernel_arguments(machine: Machine, agent: str) -> str:
    # What the kernel does not know, init finds in its environment.
    reported = base64.b64encode(agent.encode()).decode()
    fixed = "console=ttyS0 loglevel=7 panic=-1 mitigations=off nokaslr audit=0 apparmor=0 random.trust_cpu=on"
    return f"{fixed} lab_name={machine.name} lab_agent={reported}"


def _files(paths: MachinePaths) -> list[str]:
    shared = "local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap"
    disk = f"file={paths.disk},format=raw,if=none,id=disk,cache=unsafe"
    return ["-virtfs", shared, "-drive", disk, "-device", "virtio-blk-pci,drive=disk"]


def _sockets(paths: MachinePaths) -> list[str]:
    def socket(name: str, path: Path, *, more: str = "") -> list[str]:
        return ["-chardev", f"socket,id={name},path={path},server=on,wait=off{more}"]

    return [
        *socket("monitor", paths.monitor),
        *("-mon", "chardev=monitor,mode=control"),
        *socket("fabric", paths.fabric),
        *("-mon", "chardev=fabric,mode=control"),
        *socket("console", paths.console, more=f",logfile={paths.log},logappend=on"),
        *("-serial", "chardev:console"),
        *socket("channel", paths.channel),
        *(
            "-device",
            "virtio-serial-pci,id=serial",
            "-device",
            f"virtserialport,chardev=channel,name={CHANNEL}",
        ),
    ]


def _ports(machine: Machine) -> list[str]:
    # An NVMe controller with virtual functions is plugged into a subsystem, which itself cannot be plugged in.
    arguments = ["-device", f"nvme-subsys,id={SUBSYSTEM}"]
    for slot, name in enumerate(machine.port_names, start=1):
        arguments += ["-device", f"pcie-root-port,id={name},bus=pcie.0,chassis=1,slot={slot}"]
    if machine.cxl_ports:
        arguments += ["-device", "pxb-cxl,id=cxl,bus=pcie.0,bus_nr=64"]
        arguments += ["-machine", "cxl-fmw.0.targets.0=cxl,cxl-fmw.0.size=4G"]
    for number, name in enumerate(machine.cxl_port_names):
        position = f"port={number},chassis=2,slot={101 + number}"
        arguments += ["-device", f"cxl-rp,id={name},bus=cxl,{position}"]
    return arguments


def _paired_ports(paths: MachinePaths) -> list[str]:
    table = f"sig=SSDT,rev=2,oem_id=DRAWBR,oem_table_id=SLOTS,oem_rev=1,data={paths.firmware}"
    arguments = ["-acpitable", table]
    for number in range(4):
        device, function = divmod(number, 2)
        position = f"addr={PAIRED_DEVICE + device:x}.{function},multifunction=on,chassis=3,slot={11 + number}"
        hot_plug = "on" if device else "off"
        port = f"pcie-root-port,id=pair-{number + 1},bus=pcie.0,{position},hotplug={hot_plug}"
        arguments += ["-device", port]
        if not device:
            arguments += ["-device", f"e1000e,bus=pair-{number + 1},mac=52:54:00:00:00:{11 + number:02x}"]
    return arguments


def agent_command(checkout: Path, python: Path) -> str:
    """Return the shell command that runs the agent from this checkout."""
    # What the tests are run from counts before what the virtual environment was made from.
    folders = [str(checkout / "hil-tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    path = f"PYTHONPATH={shlex.quote(os.pathsep.join(folders))}"
    return f"PATH=/usr/sbin:/usr/bin:/sbin:/bin {path} {shlex.quote(str(python))} -m lab.agent"
