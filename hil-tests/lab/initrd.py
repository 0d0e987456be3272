"""The initrd of a guest: busybox, modules, and a script that makes the host's root the guest's.

The host's file system comes read-only over 9p; an overlay whose upper layer is memory makes it writable. /run is
empty and the guest's own, since the host's holds sockets of processes that the guest has not. What the guest runs is
then told by the agent.
"""

import gzip
import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lab import cpio, modules, packages

MODULES = (
    "virtio_pci",
    "virtio_console",
    "virtio_blk",
    "crc32c_generic",  # ext4 finds it by an alias
    "ext4",
    "9pnet_virtio",
    "9p",
    "overlay",
    "nvme",
    "cxl_acpi",
    "cxl_pci",
    "cxl_mem",
    "cxl_pmem",
    "nd_pmem",
    "dax_pmem",
    "device_dax",
    "kmem",
    "e1000e",
    "igb",
)
NEWER = ("dax_cxl", "igbvf")
"""What Linux 6.12 has besides: the dax devices of volatile CXL memory, and virtual functions of a network card."""
BUSYBOX = "/run/lab/busybox"

INIT = """#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
fail() { echo "lab: $1" >/dev/console; echo o >/proc/sysrq-trigger; sleep 60; }
while read -r module; do insmod "/modules/$module.ko" || echo "lab: no module $module" >/dev/console; done </modules/order
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro hostroot /host || fail "no host root"
mount -t tmpfs -o size=75% memory /memory
mkdir -p /memory/upper /memory/work
mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work overlay /root || fail "no overlay"
for folder in proc sys dev; do mount -o move /$folder /root/$folder; done
mkdir -p /root/dev/pts /root/dev/shm
mount -t devpts devpts /root/dev/pts
mount -t tmpfs memory /root/dev/shm
mount -t tmpfs memory /root/run
mkdir /root/run/lab /root/run/lock
cp /bin/busybox /root/run/lab/busybox
cp /start /root/run/lab/start
ip link set lo up
exec switch_root /root /run/lab/busybox sh /run/lab/start
"""

# The first process of the guest: it reaps orphans and outlives the agent, whose end is the machine's.
START = """/run/lab/busybox hostname "$lab_name"
/run/lab/busybox mkdir -p /var/lib/kubelet
/run/lab/busybox mount -t ext4 /dev/vda /var/lib/kubelet || { echo "lab: no disk" >/dev/console; exit 1; }
eval "$(echo "$lab_agent" | /run/lab/busybox base64 -d)"
/run/lab/busybox sync
echo o >/proc/sysrq-trigger
while :; do /run/lab/busybox sleep 60; done
"""


def build(kernel: packages.Kernel, busybox: Path, wanted: Sequence[str] = MODULES) -> bytes:
    """Return the compressed archive; the same content gives the same bytes.

    Raises:
        errors.Unavailable: a module is in neither the package nor the image.
    """
    files = modules.find(kernel.modules)
    order = modules.load_order(wanted, files, kernel.builtin)
    folders = ("bin", "dev", "host", "memory", "modules", "proc", "root", "sys")
    entries = [
        *(cpio.folder(name) for name in folders),
        cpio.character_device("dev/console", 5, 1),
        cpio.file("bin/busybox", busybox.read_bytes(), executable=True),
        cpio.file("init", INIT.encode(), executable=True),
        cpio.file("start", START.encode(), executable=True),
        cpio.file("modules/order", "".join(f"{name}\n" for name in order).encode()),
        *(cpio.file(f"modules/{name}.ko", modules.content(files[name])) for name in order),
    ]
    return gzip.compress(cpio.archive(entries), compresslevel=1, mtime=0)


def ensure_archive(
    folder: Path, kernel: packages.Kernel, busybox: Path, wanted: Sequence[str] = MODULES
) -> Path:
    """Return the archive as a file of the cache, built where there is none for this content."""
    stamp = f"{kernel.modules} {busybox.stat().st_size} {' '.join(wanted)} {INIT} {START}"
    path = folder / f"initrd-{kernel.release}-{hashlib.sha256(stamp.encode()).hexdigest()[:12]}"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".initrd-", dir=folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(build(kernel, busybox, wanted))
        Path(temporary).rename(path)
    return path
