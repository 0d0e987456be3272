"""`drawbar demo` as a user runs it: a process of its own, with the real daemons and all doubles."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from tests.scenes import collectors

from drawbar.driver import main
from drawbar.driver.kube import client, config, kinds
from drawbar.mocks.testing import worlds

QUICK = ("--nodes", "2", "--attach-seconds", "0.3", "--detach-seconds", "0.2")
# Where one daemon and one pod show the behaviour as well as several; a second to attach, or more than a test takes.
SMALL = ("--nodes", "1", "--pods", "1", "--detach-seconds", "0.2")


@contextlib.contextmanager
def making_folder():
    """Create a directory for the demo in a path shorter than tmp_path, for the sockets in it."""
    path = Path(tempfile.mkdtemp(prefix="d"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def folder():
    with making_folder() as path:
        yield path


class Demo:
    """A running demo and its output so far."""

    def __init__(self, process):
        self.process = process
        self.events = []

    async def next(self):
        line = await self.process.stdout.readline()
        event = json.loads(line) if line else None
        if event is not None:
            self.events.append(event)
        return event

    async def until(self, name):
        """Wait for the next event of that name, and return it."""
        while (event := await self.next()) is not None:
            if event.get("event") == name:
                return event
        raise AssertionError(f"no {name}: {(await self.process.stderr.read()).decode()}")

    async def finish(self):
        """Read the rest of the events and complaints; return the exit status."""
        while await self.next() is not None:
            pass
        self.complaints = (await self.process.stderr.read()).decode()
        return await self.process.wait()

    def find_events(self, name):
        return [event for event in self.events if event.get("event") == name]

    @property
    def pids(self):
        return [event["pid"] for event in self.find_events("started") + self.find_events("restarted")]


@contextlib.asynccontextmanager
async def demo(folder, *arguments, environment=None):
    """Run the demo in JSON form as a process; kill it at the end if it still runs.

    `environment` is what its processes have beside the variables of this one.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "drawbar.driver.main", "demo", "--json", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder), **(environment or {})},
    )
    try:
        yield Demo(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def list_live_processes(pids):
    """Return the processes that still run; a zombie does not."""
    running = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            continue
        if state != "Z":
            running.append(pid)
    return running


async def wait_until_ended(pids):
    """Return when none of them runs; they are not our children, so there is nothing to wait for but the change."""
    while list_live_processes(pids):  # noqa: ASYNC110
        await asyncio.sleep(0.05)


def attaches_begun(running):
    """Return how often the fabric began to attach each device, by device."""
    counts = {}
    for entry in running.find_events("fabric"):
        if (entry["kind"], entry["state"]) == ("attach", "started"):
            counts[entry["device"]] = counts.get(entry["device"], 0) + 1
    return counts


@pytest.fixture(scope="module")
def ended_demo():
    """Run a demo of four pods to its end; yield it, the spans of its processes, and its folder."""

    async def run_demo(folder):
        with collectors.collecting() as collector:
            async with demo(folder, "--pods", "4", environment=collector.environment) as running:
                assert await running.finish() == 0, running.complaints
        return running, collector.spans

    with making_folder() as folder:
        yield *asyncio.run(run_demo(folder)), folder


def test_four_pods_get_their_devices_and_every_device_comes_back(ended_demo):
    running, _, folder = ended_demo
    summary = running.events[-1]["summary"]
    counts = {key: summary[key] for key in ("pods", "running", "detached", "leaked")}
    assert counts == {"pods": 4, "running": 4, "detached": 4, "leaked": 0}
    assert 0 <= summary["added_ms"]["p50"] <= summary["added_ms"]["p99"]
    prepared = running.find_events("prepared")
    assert {event["deviceClass"] for event in prepared} == {"gpu", "fpga", "nvme", "cxl-memory"}
    assert all(event["serial"] and event["cdi"] and event["node"] for event in prepared)
    for name in ("allocated", "attaching", "attached", "visible", "bound", "running", "released", "detached"):
        assert sorted(event["pod"] for event in running.find_events(name)) == [
            f"demo-{n}" for n in range(1, 5)
        ]
    assert sorted(attaches_begun(running).values()) == [1, 1, 1, 1]
    names = [event["name"] for event in running.find_events("started")]
    assert sorted(names) == sorted(
        ["apiserver", "fabric", "scheduler", "kubelet", "controller", "node-1", "node-2", "node-3"]
    )
    assert not list_live_processes(running.pids)
    assert list(folder.iterdir()) == []


def test_each_attach_is_one_trace_of_the_controller_and_the_node_daemon(ended_demo):
    _, spans, _ = ended_demo
    traces = {}
    for received in spans:
        traces.setdefault(received.span.trace_id, []).append(received)
    assert len(traces) == 4
    for trace in traces.values():
        (root,) = [each for each in trace if not each.span.parent_span_id]
        assert (root.service, root.span.name) == ("drawbar-controller", "attach")
        assert {each.span.parent_span_id for each in trace if each is not root} == {root.span.span_id}
        assert {each.service for each in trace} == {"drawbar-controller", "drawbar-node"}
        assert {each.span.name for each in trace} >= {"fabric attach", "report attached", "recognise device"}
        assert root.attributes["drawbar.claim"].startswith("demo-")


@pytest.mark.parametrize("adapter", ["redfish", "redfish-composition", "redfish-connections"])
async def test_pods_get_their_devices_through_a_redfish_service(folder, adapter):
    async with demo(
        folder, "--adapter", adapter, "--nodes", "2", "--pods", "5", "--attach-seconds", "0.2"
    ) as running:
        assert await running.finish() == 0, running.complaints
    summary = running.events[-1]["summary"]
    counts = {key: summary[key] for key in ("pods", "running", "detached", "leaked")}
    assert counts == {"pods": 5, "running": 5, "detached": 5, "leaked": 0}
    shown = {
        "redfish": {"gpu", "fpga", "nvme", "cxl-memory", "nic"},
        "redfish-composition": {"gpu", "fpga", "nvme", "cxl-memory", "accelerator"},
        "redfish-connections": {"cxl-memory"},
    }
    assert {event["deviceClass"] for event in running.find_events("prepared")} == shown[adapter]
    assert sorted(attaches_begun(running).values()) == [1] * 5
    assert not list_live_processes(running.pids)
    assert list(folder.iterdir()) == []


CLASSIC = ("attaching", "attached", "visible", "allocated", "bound", "prepared", "running")


@pytest.mark.parametrize("profile", ["1.30-classic", "1.31-classic"])
async def test_where_our_controller_allocates_the_demo_ends_as_everywhere(folder, profile):
    asked = ("--nodes", "1", "--pods", "2", "--attach-seconds", "0.1", "--detach-seconds", "0.1")
    async with demo(folder, "--profile", profile, *asked) as running:
        assert await running.finish() == 0, running.complaints
    summary = running.events[-1]["summary"]
    counts = {key: summary[key] for key in ("pods", "running", "detached", "leaked")}
    assert counts == {"pods": 2, "running": 2, "detached": 2, "leaked": 0}
    # Counted from the step before, which elsewhere the allocation has not, and the attaching has.
    assert "allocated" in summary["steps_ms"]
    assert "attaching" not in summary["steps_ms"]
    for pod in ("demo-1", "demo-2"):
        at = {event["event"]: event["at"] for event in running.events if event.get("pod") == pod}
        assert {*CLASSIC, "deleted", "released", "detached"} <= at.keys()
        # Both are of the pod: the order of what is seen in several objects is undefined.
        assert at["bound"] <= at["running"]
    assert {event["device"] for event in running.find_events("attaching")} == {"gpu-1", "fpga-1"}
    assert sorted(attaches_begun(running).values()) == [1, 1]
    assert not list_live_processes(running.pids)
    assert list(folder.iterdir()) == []


async def test_node_daemons_killed_on_the_way_lose_no_device_and_no_pod(folder):
    async with demo(folder, *QUICK, "--attach-seconds", "1") as running:
        await running.until("ready")
        daemons = {event["name"]: event["pid"] for event in running.find_events("started")}
        # One receives the attach only after its restart, the other has prepared devices to remember.
        await running.until("attaching")
        os.kill(daemons["node-1"], signal.SIGKILL)
        await running.until("prepared")
        os.kill(daemons["node-2"], signal.SIGKILL)
        assert await running.finish() == 0, running.events[-5:]
    assert sorted(event["name"] for event in running.find_events("restarted")) == ["node-1", "node-2"]
    summary = running.events[-1]["summary"]
    assert (summary["running"], summary["detached"], summary["leaked"]) == (4, 4, 0)
    assert sorted(attaches_begun(running).values()) == [1, 1, 1, 1]


@pytest.mark.parametrize("moment", ["fabric", "released"])
async def test_a_killed_controller_attaches_nothing_twice_and_leaks_nothing(folder, moment):
    # Time to kill it in: it restarts while the fabric still detaches.
    slow = ("--attach-seconds", "1", "--detach-seconds", "1.5")
    async with demo(folder, *QUICK, *slow) as running:
        await running.until("ready")
        await running.until(moment)
        controller = next(event for event in running.find_events("started") if event["name"] == "controller")
        os.kill(controller["pid"], signal.SIGKILL)
        assert await running.finish() == 0, running.events[-5:]
    assert [event["name"] for event in running.find_events("restarted")] == ["controller"]
    assert sorted(attaches_begun(running).values()) == [1, 1, 1, 1]
    summary = running.events[-1]["summary"]
    assert (summary["running"], summary["detached"], summary["leaked"]) == (4, 4, 0)


@pytest.mark.parametrize(
    ("number", "moment"),
    [(signal.SIGINT, "started"), (signal.SIGINT, "attaching"), (signal.SIGTERM, "waiting")],
)
async def test_a_signal_stops_all_children_and_removes_their_files(folder, number, moment):
    async with demo(folder, *SMALL, "--attach-seconds", "5") as running:
        await running.until(moment)
        running.process.send_signal(number)
        assert await running.finish() == 130
    assert running.complaints == ""
    assert running.pids
    assert not list_live_processes(running.pids)
    assert list(folder.iterdir()) == []


async def test_children_do_not_outlive_a_killed_demo(folder):
    async with demo(folder, *SMALL, "--attach-seconds", "1") as running:
        await running.until("ready")
        running.process.kill()
        await running.finish()
        async with asyncio.timeout(120):
            await wait_until_ended(running.pids)


async def test_a_double_that_dies_ends_the_demo_with_its_name_and_its_log(folder):
    async with demo(folder, *SMALL, "--attach-seconds", "5") as running:
        await running.until("attaching")
        fabric = next(event for event in running.find_events("started") if event["name"] == "fabric")
        os.kill(fabric["pid"], signal.SIGKILL)
        assert await running.finish() == 1
    [line] = running.complaints.splitlines()
    assert line.startswith("error: fabric ended with status -9")
    log = line.rpartition("its log: ")[2].rstrip(")")
    assert log in [str(path) for path in folder.glob("drawbar-*/*/*")]
    assert {path.parent.name for path in folder.glob("drawbar-*/**/*.*")} == {"logs"}
    assert not list_live_processes(running.pids)


async def test_when_the_deadline_passes_it_says_which_pod_stopped_where(folder):
    # Time for an allocation on a busy machine, and for no attach.
    slow = ("--attach-seconds", "4", "--deadline", "4")
    async with demo(folder, *SMALL, *slow) as running:
        assert await running.finish() == 1
    sentences = [event["message"] for event in running.find_events("stuck")]
    assert any("demo-1 (gpu, device rack-1/chassis-1/gpu-1" in sentence for sentence in sentences)
    assert any("it was not running within 4 s" in sentence for sentence in sentences)
    assert running.events[-1]["summary"]["running"] == 0
    assert not list_live_processes(running.pids)


async def phases(api):
    """Return the phases of all attachments."""
    listed = await api.list_all(kinds.ATTACHMENT, into=dict)
    return [pod["status"]["phase"] for pod in listed.items]


async def kubectl(kubeconfig, *arguments):
    """Run kubectl; return the lines that it prints, as lists of words."""
    process = await asyncio.create_subprocess_exec(
        "kubectl", "--kubeconfig", kubeconfig, *arguments, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return [line.split() for line in out.decode().splitlines() if line]


async def list_doctors_complaints(kubeconfig):
    """Return the severities of the checks of `drawbar doctor` that are not ok."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "drawbar.driver.main", "doctor", "--kubeconfig", kubeconfig, "-o", "json"),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    found = {(finding["check"], finding["severity"]) for finding in json.loads(out)["findings"]}
    return {(check, severity) for check, severity in found if severity != "ok"}


async def test_a_kept_demo_can_be_looked_at_and_ends_on_ctrl_c(folder):
    async with demo(folder, *QUICK, "--keep") as running:
        kept = await running.until("kept")
        assert kept["directory"].startswith(str(folder))
        async with client.connecting(config.load(kept["kubeconfig"])) as api:
            # Their claims get the report first.
            await worlds.World(api).until(lambda: phases(api), lambda reported: reported == ["Ready"] * 4)
        if shutil.which("kubectl"):
            shown = await kubectl(kept["kubeconfig"], "get", "deviceattachments,resourceslices")
            ready = [line for line in shown if line[0].startswith("deviceattachment.drawbar.dev/")]
            assert [line[1] for line in ready] == ["Ready"] * 4
            pools = {line[2] for line in shown if line[0].startswith("resourceslice.resource.k8s.io/")}
            assert pools == {"rack-1/chassis-1", "rack-1/chassis-2"}
            pods = await kubectl(kept["kubeconfig"], "get", "pods")
            assert [line[2] for line in pods] == ["STATUS", *["Running"] * 4]
        assert await list_doctors_complaints(kept["kubeconfig"]) == {
            # What Kubernetes 1.36 does not have; the emulated kubelet has no container runtime.
            ("features.taint-rules", "note"),
            ("nodes.runtime", "note"),
        }
        running.process.send_signal(signal.SIGINT)
        assert await running.finish() == 0, running.complaints
    assert not list_live_processes(running.pids)
    assert list(folder.iterdir()) == []
    if not shutil.which("kubectl"):
        pytest.skip("KUBECTL IS NOT INSTALLED: all but its tables was checked")


def test_user_errors_are_one_sentence(capsys):
    assert main.main(["demo", "--json", "--pods", "0", "--nodes", "99"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "--pods 0" in line
    assert "--nodes 99" in line


async def test_a_reader_that_goes_away_ends_the_demo_without_a_traceback(folder):
    process = await asyncio.create_subprocess_shell(
        f"{sys.executable} -m drawbar.driver.main demo --json --nodes 1 --pods 1 | head -n 1",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    _, complaints = await process.communicate()
    assert complaints == b""
