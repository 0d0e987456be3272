"""The node daemon as a process: what it reports of itself, and that it ends on a signal."""

import asyncio
import contextlib
import json
import os
import signal
import sys

import grpc
import pytest

from drawbar.driver.kube import client, config, kinds
from drawbar.driver.node.preparation import cleaning
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import apiserver, sysfs
from drawbar.mocks.apiserver import faults
from drawbar.mocks.cluster import deployment
from drawbar.proto.kubelet.dra.v1 import api_pb2, api_pb2_grpc
from drawbar.proto.kubelet.drahealth.v1 import api_pb2 as health_pb2
from drawbar.proto.kubelet.drahealth.v1 import api_pb2_grpc as health_pb2_grpc
from drawbar.proto.kubelet.pluginregistration.v1 import api_pb2 as registration_pb2
from drawbar.proto.kubelet.pluginregistration.v1 import api_pb2_grpc as registration_pb2_grpc

NODE = "node-1"
DISK = sysfs.MockDevice(device_class=DeviceClass.NVME, vendor=0x1B36, device=0x0010, serial="SN0001")
# On a busy machine; what is promised is in test_supervision.py.
ENDS_SECONDS = 60.0


class Pod:
    """One node daemon with its mocked host and its API server."""

    def __init__(self, folder, server, api, tree):
        self.folder, self.server, self.api, self.tree = folder, server, api, tree
        self.process = None
        self.plugins = folder / "k" / "plugins" / "drawbar.dev"
        self.registration = folder / "k" / "plugins_registry" / "drawbar.dev-reg.sock"

    @property
    def words(self):
        options = {
            "node-name": NODE,
            "pod-uid": "",
            "kubeconfig": self.folder / "node",
            "kubelet-dir": self.folder / "k",
            "cdi-dir": self.folder / "cdi",
            "sysfs": self.folder / "sys",
            "uevents": f"unix:{self.folder / 'uevents'}",
        }
        return [f"--{name}={value}" for name, value in options.items()]

    async def start(self, *words):
        with (self.folder / "log").open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(
                    sys.executable,
                    "-m",
                    "drawbar.driver.main",
                    "node",
                    "--log-format=json",
                    *self.words,
                    *words,
                ),
                stderr=log,
            )

    async def run(self, *words):
        """Run another `drawbar node` with the same settings; return its exit status and its output."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "drawbar.driver.main", "node", *self.words, *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return process.returncode, out.decode() + err.decode()

    async def page(self, path):
        reader, writer = await asyncio.open_unix_connection(str(self.plugins / "http.sock"))
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        async with asyncio.timeout(120):
            head, _, content = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()
        return int(head.split()[1]), content.decode()

    async def read_readiness(self):
        """Return the answer of /readyz; None before any process answers."""
        try:
            return json.loads((await self.page("/readyz"))[1])
        except OSError:
            return None

    async def wait_until_listening(self, until):
        """Wait until only the kubelet is missing, and its sockets are there."""
        only_kubelet = await until(
            self.read_readiness, lambda reported: reported and set(reported["missing"]) == {"kubelet"}
        )

        async def listens():
            return self.registration.exists()

        # The last to appear.
        await until(listens, bool)
        return only_kubelet

    async def register(self):
        """Notify the driver as a kubelet that has registered it."""
        async with grpc.aio.insecure_channel(f"unix:{self.registration}") as channel:
            stub = registration_pb2_grpc.RegistrationStub(channel)
            await stub.NotifyRegistrationStatus(
                registration_pb2.RegistrationStatus(plugin_registered=True), wait_for_ready=True, timeout=20
            )

    @property
    def log(self):
        return (self.folder / "log").read_text()


@pytest.fixture
async def pod(tmp_path):
    tree = sysfs.SysfsTree.create(tmp_path / "sys", uevent_socket=tmp_path / "uevents")
    async with apiserver.serving() as server:
        server.kubeconfig(tmp_path / "admin", "admin")
        server.kubeconfig(tmp_path / "node", "drawbar:drawbar-node", node=NODE)
        async with client.connecting(config.from_kubeconfig(tmp_path / "admin")) as api:
            await deployment.apply(api)
            await api.create(
                kinds.NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}, into=dict
            )
            daemon = Pod(tmp_path, server, api, tree)
            try:
                yield daemon
            finally:
                if daemon.process is not None:
                    with contextlib.suppress(ProcessLookupError):
                        daemon.process.kill()
                    await daemon.process.wait()


async def test_the_daemon_reports_missing_parts_until_it_is_ready(pod, until):
    await pod.start()
    only_kubelet = await pod.wait_until_listening(until)
    assert only_kubelet["ready"] is False
    assert (await pod.page("/healthz")) == (200, '{"alive": true, "overdue": []}\n')
    status, output = await pod.run("--check")
    assert (status, json.loads(output)["missing"]) == (
        1,
        {"kubelet": "the kubelet has not registered the driver"},
    )
    assert (await pod.run("--check", "alive"))[0] == 0
    await pod.register()
    assert await pod.run("--check") == (0, '{"ready": true, "missing": {}}\n')


async def test_the_metrics_show_the_work_of_the_daemon(pod, until):
    await pod.start()
    await pod.wait_until_listening(until)
    await asyncio.to_thread(pod.tree.attach, 1, DISK)

    async def metrics():
        return (await pod.page("/metrics"))[1]

    await until(metrics, lambda text: 'drawbar_node_uevents_total{action="add",driver="drawbar.dev"}' in text)
    async with grpc.aio.insecure_channel(f"unix:{pod.plugins / 'dra.sock'}") as channel:
        await api_pb2_grpc.DRAPluginStub(channel).NodeUnprepareResources(
            api_pb2.NodeUnprepareResourcesRequest(
                claims=[api_pb2.Claim(namespace="default", name="c", uid="u")]
            ),
            timeout=20,
        )
    text = await metrics()
    assert (
        'drawbar_node_claim_requests_total{driver="drawbar.dev",operation="unprepare",result="OK"} 1.0'
        in text
    )
    assert (
        'drawbar_node_api_requests_total{driver="drawbar.dev",resource="deviceattachments",result="OK",verb="GET"} 1.0'
        in text
    )
    assert 'drawbar_node_kubelet_registered{driver="drawbar.dev"} 0.0' in text
    assert 'drawbar_node_acting{driver="drawbar.dev"} 1.0' in text


async def test_a_daemon_that_does_not_answer_is_one_sentence(pod):
    status, output = await pod.run("--check")
    assert (status, output.count("\n")) == (1, 1)
    assert "no daemon answers" in output
    status, output = await pod.run("--check", "--http-address=off")
    assert (status, "--http-address is off" in output) == (2, True)


async def test_the_effective_settings_are_shown_without_a_daemon(pod):
    status, output = await pod.run("--print-config", "-o", "json")
    assert status == 0
    assert json.loads(output)["nodeName"] == {"value": NODE, "source": "--node-name"}


@contextlib.asynccontextmanager
async def hung_prepare(pod, until):
    """Start a Prepare of a claim for which the API server never answers."""
    asked = pod.server.faults.add(
        faults.Fault(
            effect=faults.Partition(), select=faults.Selection(verb="get", resource="resourceclaims")
        )
    )
    async with grpc.aio.insecure_channel(f"unix:{pod.plugins / 'dra.sock'}") as channel:
        call = api_pb2_grpc.DRAPluginStub(channel).NodePrepareResources(
            api_pb2.NodePrepareResourcesRequest(
                claims=[api_pb2.Claim(namespace="default", name="c", uid="u")]
            )
        )

        async def read_struck():
            return asked.struck

        await until(read_struck, bool)
        yield
        call.cancel()


@contextlib.asynccontextmanager
async def open_health_stream(pod, until):
    async with grpc.aio.insecure_channel(f"unix:{pod.plugins / 'dra.sock'}") as channel:
        stream = health_pb2_grpc.DRAResourceHealthStub(channel).NodeWatchResources(
            health_pb2.NodeWatchResourcesRequest()
        )
        await stream.read()
        yield
        stream.cancel()


HANGING = {"nothing": contextlib.nullcontext, "prepare": hung_prepare, "stream": open_health_stream}


@pytest.mark.parametrize("case", HANGING)
async def test_the_daemon_ends_in_time_despite_open_kubelet_connections(pod, until, case):
    await pod.start()
    await pod.wait_until_listening(until)
    async with HANGING[case]() if case == "nothing" else HANGING[case](pod, until):
        pod.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(ENDS_SECONDS):
            status = await pod.process.wait()
    assert status == 0
    assert not pod.registration.exists()
    assert not (pod.plugins / "http.sock").exists()
    for line in pod.log.splitlines():
        assert {"ts", "level", "logger", "message"} <= json.loads(line).keys()


async def test_the_daemon_ends_in_time_even_if_a_thread_hangs_in_the_kernel(pod, until):
    # A file that is never answered for, as on a dead network filesystem or behind a driver that hangs.
    file = pod.plugins / cleaning.FOLDER / f"gpu-1{cleaning.SUFFIX}"
    file.parent.mkdir(parents=True)
    os.mkfifo(file)

    async def open_other_end():
        with contextlib.suppress(OSError):  # nobody reads it yet
            return os.open(file, os.O_WRONLY | os.O_NONBLOCK)

    await pod.start()
    descriptor = await until(open_other_end, lambda opened: opened is not None)
    pod.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(ENDS_SECONDS):
        assert await pod.process.wait() == 1
    reported = [json.loads(line) for line in pod.log.splitlines()]
    assert reported[-1]["message"] == "clean-up hangs, ending without it"
    assert any("thread" in name for name in reported[-1]["hanging"])
    os.close(descriptor)
