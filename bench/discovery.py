"""How fast the inventory is read and kept current: ``python bench/discovery.py`` (``make bench``).

The tree has 10,000 functions in memory-backed files, where a directory costs about as much as in sysfs. It is read
in full several times in a fresh process, as at the start of the daemon, and the best time counts, for what other programs
on the machine take away is not discovery's. A hot-plug is what the kernel sends when an NVMe disk is put in and taken
out again, through the node daemon's own event path, with all that is read again once the dust has settled; its
processor time is that of the whole process, on average.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import report
import sysfstree

from drawbar.driver.node import uevents
from drawbar.driver.node.discovery import devices
from drawbar.driver.node.uevents import sources

READINGS = 7
MEMORY_BACKED = Path("/dev/shm")
# What Linux 6.1 sends, in its order; {function} and {name} are the disk's.
ADDED = (
    "add@/{function}",
    "add@/{function}/nvme/{name}",
    "bind@/{function}",
    "change@/{function}/nvme/{name}",
    "add@/{function}/nvme/{name}/{name}n1",
    "add@/{function}/nvme/{name}/ng",
)
REMOVED = (
    "remove@/{function}/nvme/{name}/ng",
    "remove@/{function}/nvme/{name}/{name}n1",
    "remove@/{function}/nvme/{name}",
    "unbind@/{function}",
    "remove@/{function}",
)
DISK = 1  # the card of the generated tree that comes and goes: `sysfstree.KINDS` has a disk here
READ = """
import sys, time
from pathlib import Path
from drawbar.driver.node.discovery import reader
tree, times = Path(sys.argv[1]), []
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6
before = resident()
kept = reader.read(tree)
memory = resident() - before
del kept
for _ in range(int(sys.argv[2])):
    began = time.perf_counter()
    reader.read(tree)
    times.append(time.perf_counter() - began)
print(min(times), sorted(times)[len(times) // 2], memory)
"""


def time_reading(tree: Path) -> tuple[float, float, float]:
    """Return the best and the median time of a full reading in seconds, and the memory that its result takes in MB."""
    command = (sys.executable, "-c", READ, str(tree), str(READINGS))
    best, median, memory = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(best), float(median), float(memory)


class Disk:
    """The disk that is put in and taken out: its directory and the links to it move in one step each."""

    def __init__(self, tree: Path, folder: Path) -> None:
        self.path = sysfstree.first(DISK)
        self._directory = tree / self.path
        self._link = tree / "bus/pci/devices" / self._directory.name
        self._away = folder / "away"

    def put_in(self) -> None:
        """Let the disk appear."""
        self._away.rename(self._directory)
        self._link.symlink_to(f"../../../{self.path}")

    def take_out(self) -> None:
        """Let the disk disappear."""
        self._link.unlink()
        self._directory.rename(self._away)


async def hotplugs(tree: Path, folder: Path, count: int) -> tuple[float, float]:
    """Return the processor time and the time to discovery per hot-plug event sequence, in milliseconds."""
    discovered = devices.Devices(tree, settings=devices.Tracking(audit_seconds=0), pauses_seconds=(0.05,))
    await discovered.read()
    source = sources.Backlog(4096)
    disk = Disk(tree, folder)
    changed = asyncio.Event()
    discovered.subscribe(lambda changes: changed.set() if disk.path[-12:] in changes.functions else None)
    spent, waited = 0.0, 0.0
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(discovered.follow(source), name="follow")
        await asyncio.sleep(0.1)
        for number in range(count):
            plugged_in = number % 2 == 1
            (disk.put_in if plugged_in else disk.take_out)()
            changed.clear()
            cpu, began = time.process_time(), time.perf_counter()
            for line in ADDED if plugged_in else REMOVED:
                text = line.format(function=disk.path, name=f"nvme{DISK}")
                source.put(_event(text))
            async with asyncio.timeout(10):
                await changed.wait()
            waited += time.perf_counter() - began
            assert (discovered.card_at(disk.path[-12:]) is not None) is plugged_in
            assert len(discovered.cards) > 0
            await asyncio.sleep(0.15)  # until everything has settled
            spent += time.process_time() - cpu
        source.close()
    if not plugged_in:
        disk.put_in()
    return 1000 * spent / count, 1000 * waited / count


def _event(text: str) -> uevents.Uevent:
    event = uevents.parse(f"{text}\0SUBSYSTEM=pci\0SEQNUM=1\0".encode())
    assert event is not None
    return event


def measure(options: argparse.Namespace) -> list[report.Measure]:
    """Measure everything."""
    where = MEMORY_BACKED if MEMORY_BACKED.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="drawbar-bench-", dir=where))
    try:
        tree = folder / "sys"
        sysfstree.build(tree, options.functions)
        best, median, memory = time_reading(tree)
        cpu, waited = asyncio.run(hotplugs(tree, folder, options.events))
    finally:
        shutil.rmtree(folder)
    size = f"{options.functions:,} functions"
    return [
        report.Measure(
            f"discovery: full reading of {size}, best of {READINGS}", best, "s", target=1, goal=0.5
        ),
        report.Measure(f"discovery: full reading of {size}, median", median, "s"),
        report.Measure(f"discovery: memory that {size} take", memory, "MB"),
        report.Measure(f"discovery: processor time of a hot-plug among {size}", cpu, "ms", target=5),
        report.Measure("discovery: from its first event to the model", waited, "ms"),
    ]


def main() -> int:
    """Run it; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description="benchmark of discovery and hot-plug")
    parser.add_argument("--functions", type=int, default=10_000)
    parser.add_argument("--events", type=int, default=60, help="how many hot-plugs, half of them out")
    parser.add_argument("--output", type=Path, default=report.LATEST, help="the JSON file to merge into")
    options = parser.parse_args()
    where = report.machine()
    return 0 if report.publish("Discovery", measure(options), where=where, path=options.output) else 1


if __name__ == "__main__":
    sys.exit(main())
