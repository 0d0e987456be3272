"""The controller as an administrator sees it: probes, numbers, and that it ends on a signal."""

import asyncio
import contextlib
import json
import re
import signal
import sys

import pytest
from tests.scenes import maintenances

from drawbar.driver.controller import settings
from drawbar.driver.controller.operation import instrumentation
from drawbar.driver.kube import kinds
from drawbar.driver.operation import address, readiness
from drawbar.fabric import contract
from drawbar.mocks.apiserver import faults

# On a busy machine; what is promised is in test_supervision.py.
ENDS_SECONDS = 60.0


class Page:
    """One controller's pages."""

    def __init__(self, path):
        self.address = f"unix:{path}"
        self.http = settings.Http(address=self.address)

    async def read(self, page):
        """Return the verdict, or None while nobody answers."""
        try:
            return await asyncio.to_thread(address.ask, address.parse(self.address), page)
        except address.AddressError:
            return None

    async def readiness(self):
        verdict = await self.read("/readyz")
        return (verdict.good, json.loads(verdict.text)) if verdict else None

    async def metrics(self):
        """Return the series without their label `driver`; empty while nobody answers, or not in time."""
        verdict = await self.read("/metrics")
        text = verdict.text if verdict else ""
        return re.sub(r',?driver="drawbar\.dev"', "", text).replace("{,", "{").replace("{}", "")


async def come_and_go(cluster, until, device):
    """Attach the device for a claim, and detach it."""
    await cluster.allocate(device)
    await cluster.wait_until_attached(device)
    await cluster.node_says(f"fab.{device}", "Visible")
    await cluster.deallocate()
    await cluster.wait_until_deleting(f"fab.{device}")
    await cluster.release_attachments(f"fab.{device}")


async def test_the_numbers_tell_of_an_attach_a_detach_and_the_fabric(controller_world, until, tmp_path):
    page = Page(tmp_path / "h.sock")
    async with controller_world() as cluster:
        cluster.start(http=page.http)
        await cluster.make_fabric()
        await cluster.wait_for_slices()
        await come_and_go(cluster, until, "gpu-0")
        for line in (
            'attaches_total{result="Attached"} 1.0',
            'detaches_total{result="Released"} 1.0',
            'attach_duration_seconds_count{way="Attached"} 1.0',
            *(
                f'step_duration_seconds_count{{step="{step}"}} 1.0'
                for step in ("create", "ask", "connect", "tell", "release", "ask-detach", "free")
            ),
            'fabric_calls_total{call="attach",code="OK",fabric="fab"} 1.0',
            'fabric_calls_total{call="detach",code="OK",fabric="fab"} 1.0',
            'fabric_call_duration_seconds_count{call="devices",fabric="fab"}',
            'devices{fabric="fab",state="free"} 3.0',
            'fabric_connected{fabric="fab"} 1.0',
            'fabric_condition{condition="Connected",fabric="fab"} 1.0',
            'queue_length{fabric="fab"} 0.0',
            'api_requests_total{resource="deviceattachments",result="OK",verb="POST"} 1.0',
            'api_requests_total{resource="leases",result="OK",verb="POST"} 1.0',
            "leading 1.0",
            "terms_total 1.0",
            "ready 1.0",
        ):
            await until(page.metrics, lambda text, line=line: f"drawbar_controller_{line}" in text)


async def test_the_states_of_devices_follow_the_claims_the_fabric_and_the_fabrics_end(
    controller_world, until, tmp_path
):
    page = Page(tmp_path / "h.sock")

    def states(text):
        mark = 'drawbar_controller_devices{fabric="fab",state="'
        lines = [line.removeprefix(mark) for line in text.splitlines() if line.startswith(mark)]
        return {line.split('"')[0]: float(line.split()[-1]) for line in lines if not line.endswith(" 0.0")}

    async with controller_world() as cluster:
        await cluster.fabric.attach(
            contract.AttachRequest(request_id="other", device_id="disk-0", host_id="host-node-2")
        )
        cluster.start(http=page.http)
        await cluster.make_fabric()
        await cluster.wait_for_slices()
        await until(page.metrics, lambda text: states(text) == {"free": 2, "foreign": 1})
        await cluster.allocate("gpu-0")
        await until(page.metrics, lambda text: states(text) == {"free": 1, "foreign": 1, "attached": 1})
        await cluster.deallocate()
        await cluster.wait_until_deleting("fab.gpu-0")
        await maintenances.begin(cluster.api, devices=["GPU/1"])
        releasing = 'drawbar_controller_attachments{phase="Releasing"} 1.0'
        await until(
            page.metrics,
            lambda text: states(text) == {"tainted": 1, "foreign": 1, "attached": 1} and releasing in text,
        )
        await cluster.release_attachments("fab.gpu-0")
        await cluster.api.delete(kinds.FABRIC, "fab")
        await until(page.metrics, lambda text: text and 'fabric="fab"' not in text)


async def test_a_failure_is_counted_by_its_reason(controller_world, until, tmp_path):
    page = Page(tmp_path / "h.sock")
    async with controller_world(attachFails=[{"device": "gpu-0", "message": "no link"}]) as cluster:
        cluster.start(http=page.http)
        await cluster.make_fabric()
        await cluster.wait_for_slices()
        await cluster.allocate("gpu-0")
        # The one when the claim got the failure, the other when the fabric's answer was taken up.
        for line in (
            'attaches_total{result="FabricError"} 1.0',
            'failed_operations_total{operation="attach",reason="FabricError"} 1.0',
        ):
            await until(page.metrics, lambda text, line=line: line in text)


async def test_fields_that_the_api_server_drops_are_reported(controller_world, until, tmp_path):
    page = Page(tmp_path / "h.sock")
    async with controller_world(profile="1.34") as cluster:
        cluster.start(http=page.http)
        await cluster.make_fabric()
        dropped = 'drawbar_controller_dropped_fields{field="bindingConditions"} 1.0'
        await until(page.metrics, lambda text: dropped in text)


async def test_a_follower_is_ready_and_says_that_it_is_one(controller_world, until, tmp_path):
    first, second = Page(tmp_path / "one.sock"), Page(tmp_path / "two.sock")
    async with controller_world() as cluster:
        cluster.start(http=first.http, identity="one")
        await until(
            first.readiness,
            lambda readiness: readiness == (True, {"ready": True, "missing": {}, "role": "leader"}),
        )
        cluster.start(http=second.http, identity="two")
        _, readiness = await until(second.readiness, lambda readiness: readiness and readiness[0])
        assert readiness["role"] == "follower"
        await cluster.make_fabric()
        await cluster.wait_for_slices()
        text = await until(second.metrics, bool)
        assert "drawbar_controller_leading 0.0" in text
        assert "drawbar_controller_attachments{" not in text
        assert 'fabric="fab"' not in text
        await cluster.stop()
        await until(second.readiness, lambda readiness: readiness and readiness[1]["role"] == "leader")


async def test_unready_parts_are_named(controller_world, until, tmp_path):
    page = Page(tmp_path / "h.sock")
    async with controller_world() as cluster:
        cluster.server.faults.add(
            faults.Fault(effect=faults.Partition(), select=faults.Selection(verb="list", resource="nodes"))
        )
        cluster.start(http=page.http)
        ready, readiness = await until(
            page.readiness, lambda readiness: readiness and "nodes;" in readiness[1]["missing"]["caches"]
        )
        assert (ready, readiness["role"]) == (False, "follower")
        assert (await until(lambda: page.read("/healthz"), bool)).good


async def test_a_round_that_hangs_is_found_out(controller_world, until):
    async with controller_world() as cluster:

        async def silent(_request):
            await asyncio.get_running_loop().create_future()

        cluster.fabric.attach = silent
        measured = instrumentation.Instrumentation(settings.Settings(leader_election=False))
        now = [0.0]
        measured.watchdog = readiness.Watchdog(lambda: now[0])
        await cluster.controller(measured)
        await cluster.make_fabric()
        await cluster.wait_for_slices()
        await cluster.allocate("gpu-0")

        async def overdue():
            now[0] += 2 * readiness.ROUND_LIMIT_SECONDS
            return measured.watchdog.overdue()

        await until(overdue, lambda names: any("fab.gpu-0" in name for name in names))


class Pod:
    """A controller as a process of its own."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.process = None
        self.page = Page(cluster.path / "h.sock")

    @property
    def words(self):
        return (
            *(sys.executable, "-m", "drawbar.driver.main", "controller", "--log-format=json"),
            *(f"--kubeconfig={self.cluster.path / 'controller'}", "--identity=pod"),
            f"--http-address={self.page.address}",
        )

    async def start(self):
        with (self.cluster.path / "log").open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(*self.words, stderr=log)

    async def ask(self, *words):
        """Run `--check` with the same settings; return its exit status and what it printed."""
        process = await asyncio.create_subprocess_exec(
            *self.words, "--check", *words, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
        return process.returncode, json.loads(out)

    @property
    def log(self):
        return [json.loads(line) for line in (self.cluster.path / "log").read_text().splitlines()]

    async def holder(self):
        lease = await self.cluster.api.read(
            kinds.LEASE, settings.LEASE, namespace=settings.NAMESPACE, into=dict
        )
        return lease["spec"]["holderIdentity"]

    async def ends(self):
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(ENDS_SECONDS):
            return await self.process.wait()


@contextlib.asynccontextmanager
async def leading_pod(controller_world, until, **fabric):
    async with controller_world(**fabric) as cluster:
        pod = Pod(cluster)
        await pod.start()
        try:
            await until(pod.page.readiness, lambda readiness: readiness and readiness[1]["role"] == "leader")
            await cluster.make_fabric()
            await cluster.wait_for_slices()
            yield cluster, pod
        finally:
            with contextlib.suppress(ProcessLookupError):
                pod.process.kill()
            await pod.process.wait()


async def test_the_process_answers_for_itself_and_gives_the_lease_back_when_it_ends_in_mid_attach(
    controller_world, until
):
    async with leading_pod(controller_world, until, attachSeconds=60.0) as (cluster, pod):
        assert await pod.ask() == (0, {"ready": True, "missing": {}, "role": "leader"})
        assert await pod.ask("alive") == (0, {"alive": True, "overdue": []})
        await cluster.allocate("gpu-0")
        await until(pod.page.metrics, lambda text: 'running_operations{fabric="fab"} 1.0' in text)
        assert await pod.holder() == "pod"
        assert await pod.ends() == 0
        assert await pod.holder() == ""
        assert not (cluster.path / "h.sock").exists()


@pytest.mark.parametrize("silent", ["API server", "fabric manager"])
async def test_the_process_ends_in_time_despite_a_silent_peer(controller_world, until, silent):
    async with leading_pod(controller_world, until) as (cluster, pod):
        asked = asyncio.Event()
        if silent == "API server":
            cut_off = faults.Fault(
                effect=faults.Partition(),
                select=faults.Selection(user="system:serviceaccount:drawbar:drawbar-controller"),
            )
            cluster.server.faults.add(cut_off)
        else:

            async def attach(_request):
                asked.set()
                await asyncio.get_running_loop().create_future()

            cluster.fabric.attach = attach
            await cluster.allocate("gpu-0")
            async with asyncio.timeout(120):
                await asked.wait()
        assert await pod.ends() == 0
        assert not any("hangs" in line["message"] for line in pod.log)
