"""`drawbar demo --adapter qemu`: as a user runs it, and the parts of its stage that need no guest."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from lab import errors, fabric_journal, stage, waiting

from drawbar.fabric import contract
from drawbar.mocks import cluster
from drawbar.mocks import errors as mock_errors
from drawbar.mocks.fabric import journal

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def folder():
    """Yield the folder where the demo makes everything; its path is short, for the sockets in it."""
    path = Path(tempfile.mkdtemp(prefix="d", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@contextlib.asynccontextmanager
async def demo(drawbar, folder, *arguments):
    """Run the demo as a process in JSON form; kill it at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *(drawbar, "demo", "--adapter", "qemu", "--json", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def programs_of(folder):
    """Return the programs whose command line names the folder."""
    programs = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            line = (process / "cmdline").read_bytes().decode(errors="replace")
            programs += [line.split("\0")[0]] if str(folder) in line else []
    return programs


async def processes(folder):
    """Return the same as `programs_of`, from a thread."""
    return await asyncio.to_thread(programs_of, folder)


def by_pod(events, name):
    return {event["pod"]: event for event in events if event.get("event") == name}


async def test_pods_read_their_disks_through_a_real_kernel_and_nothing_is_left(lab, drawbar, folder):
    async with demo(drawbar, folder, "--pods", "2") as process:
        reported, complaints = await process.communicate()
    events = [json.loads(line) for line in reported.splitlines()]
    assert (process.returncode, complaints) == (0, b""), events[-5:]
    summary = events[-1]["summary"]
    counts = {key: summary[key] for key in ("pods", "running", "read", "detached", "leaked")}
    assert counts == {"pods": 2, "running": 2, "read": 2, "detached": 2, "leaked": 0}
    for pod, read in by_pod(events, "read").items():
        assert read["content"] == f"pooled disk {read['device'].rpartition('-')[2]}"
        seen = by_pod(events, "seen")[pod]
        assert seen["address"] == read["address"] != ""
        times = [
            by_pod(events, name)[pod]["at"] for name in ("allocated", "seen", "visible", "prepared", "read")
        ]
        assert times == sorted(times)
    assert {"attaching", "attached", "seen", "visible", "prepared", "read"} <= summary["steps_ms"].keys()
    assert summary["fabric_ms"]["attach"]["p50"] > 0
    assert await processes(folder) == []
    assert list(folder.iterdir()) == []


async def test_ctrl_c_during_the_boot_stops_the_machine_and_removes_its_files(lab, drawbar, folder):
    async with demo(drawbar, folder) as process:
        await waiting.until(lambda: processes(folder))
        process.send_signal(signal.SIGINT)
        _, complaints = await process.communicate()
    assert (process.returncode, complaints) == (130, b"")
    assert await processes(folder) == []
    assert list(folder.iterdir()) == []


@pytest.mark.short
@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (b"", ""),
        (b"[ 0.1] one\r\n\r\n[ 0.2] t", "[ 0.1] one"),
        (b"\x1b[1mtwo\x07\n" + b"x" * 9, "[1mtwo"),
        (b"y" * 9000 + b"\n", "y" * stage.LINE_CHARACTERS),
    ],
)
async def test_the_last_whole_line_of_a_console_is_told_without_control_characters(
    tmp_path, content, reported
):
    console = tmp_path / "console.log"
    console.write_bytes(content)
    assert stage.last_line(console) == reported


@pytest.mark.short
async def test_a_console_that_says_nothing_yet_is_no_error(tmp_path):
    assert stage.last_line(tmp_path / "console.log") == ""


@pytest.mark.short
@pytest.mark.parametrize(
    ("raised", "kind", "reported"),
    [
        (errors.Unavailable("no kernel: get one"), mock_errors.UsageError, "no kernel: get one"),
        (
            errors.GuestSilent("node-1 did not come up; its console ends with:\n[ 0.1] oops"),
            cluster.ClusterError,
            "node-1 did not come up (logs: /l)",
        ),
        (
            AssertionError("after 60 s it is still {}"),
            cluster.ClusterError,
            "after 60 s it is still {} (logs: /l)",
        ),
    ],
)
async def test_a_failure_of_the_lab_is_one_sentence_of_the_demo(raised, kind, reported):
    with pytest.raises(kind) as caught, stage.explaining(Path("/l")):
        raise raised
    assert str(caught.value) == reported


class Watched:
    """An adapter that tells of operations."""

    def __init__(self, *operations):
        self._operations = operations

    async def devices(self):
        return contract.Inventory(version="1", devices=())

    async def hosts(self):
        return (contract.Host(id="node-1", name="node-1"),)

    @contextlib.asynccontextmanager
    async def watch(self, _version):
        async def events():
            for operation in self._operations:
                yield contract.OperationChanged(version="2", operation=operation)
            await asyncio.get_running_loop().create_future()

        yield events()


def operation(number, kind, **more):
    device = contract.Device(id="disk", device_class=contract.DeviceClass.NVME)
    return contract.Operation(id=number, request_id=f"r{number}", kind=kind, device=device, **more)


@pytest.mark.short
async def test_the_journal_has_a_start_and_an_end_for_each_operation(tmp_path):
    attach, detach = contract.OperationKind.ATTACH, contract.OperationKind.DETACH
    events = [
        operation("1", attach, done=False),
        operation("1", attach, done=False, percent=50),
        operation("1", attach, done=True),
        operation("2", detach, done=True),
    ]
    path = tmp_path / "journal"
    async with fabric_journal.writing(Watched(*events), path):

        async def entries():
            return journal.read(path)

        written = await waiting.until(entries, lambda written: len(written) == 4)
    assert [(entry.kind, entry.event, entry.host) for entry in written] == [
        (attach, "started", "node-1"),
        (attach, "finished", "node-1"),
        (detach, "started", "node-1"),
        (detach, "finished", "node-1"),
    ]


@pytest.mark.short
async def test_half_a_line_of_the_kernels_events_is_left_for_later():
    event = {"SEQNUM": "7", "ACTION": "add", "SUBSYSTEM": "pci"}
    output = "{}\n" + json.dumps(event) + "\n[lab: lost]\n" + json.dumps(event)[:9]
    assert list(stage.uevents(output)) == [event]
