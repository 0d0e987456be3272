"""The local pool of a whole daemon: kubelet double, API server double, mocked sysfs tree."""

import asyncio
import contextlib

import grpc
import pytest
from tests.scenes import attachments as scenes
from tests.scenes import clusters

from drawbar.cdi import files, spec
from drawbar.driver.kube import client, config, kinds
from drawbar.driver.node import daemon, settings
from drawbar.driver.node.health import policy
from drawbar.driver.node.local import publisher, residents
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import apiserver, sysfs
from drawbar.mocks.cluster import deployment
from drawbar.mocks.kubelet import node, server
from drawbar.proto.kubelet.dra.v1 import api_pb2, api_pb2_grpc

NODE, DRIVER = "node-1", "drawbar.dev"
SERIAL = "48-b0-2d-00-00-00-00-0{}"
NAME = "gpu-48-b0-2d-00-00-00-00-01"


def gpu(number, **changes):
    values = {"device_class": DeviceClass.GPU, "vendor": 0x10DE, "device": 0x2330}
    return sysfs.MockDevice(**values | {"serial": SERIAL.format(number)} | changes)


DISK = sysfs.MockDevice(device_class=DeviceClass.NVME, vendor=0x1B36, device=0x10, serial="SN1")


class World(clusters.Cluster):
    """A node whose first slot belongs to itself, and its daemon."""

    def __init__(self, path, api, tree, kubelets):
        super().__init__(api)
        self.path, self.tree, self.kubelets = path, tree, kubelets

    async def devices(self):
        return {
            one["name"]: one
            for found in await self.list(kinds.SLICE)
            for one in found["spec"].get("devices", ())
        }

    def attach(self, slot, device):
        return asyncio.to_thread(self.tree.attach, slot, device)

    async def claim(self, device):
        """A claim that the scheduler gave that device of the node's pool."""
        await super().claim("c1", "gpu")
        result = {"request": "one", "driver": DRIVER, "pool": NODE, "device": device}
        status = {"allocation": {"devices": {"results": [result]}}}
        return await self.set_status(kinds.CLAIM, "c1", status)

    async def prepare(self, claim):
        return await self._call("NodePrepareResources", api_pb2.NodePrepareResourcesRequest, claim)

    async def unprepare(self, claim):
        return await self._call("NodeUnprepareResources", api_pb2.NodeUnprepareResourcesRequest, claim)

    async def _call(self, method, request, claim):
        uid = claim["metadata"]["uid"]
        name = api_pb2.Claim(namespace="default", name="c1", uid=uid)
        socket = self.path / "node" / "plugins" / DRIVER / "dra.sock"
        async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
            stub = api_pb2_grpc.DRAPluginStub(channel)
            answer = await getattr(stub, method)(request(claims=[name]), wait_for_ready=True)
        return answer.claims[uid]


@contextlib.asynccontextmanager
async def world(tmp_path, health=None, **wanted):
    tree = sysfs.SysfsTree.create(tmp_path / "sys", uevent_socket=tmp_path / "uevents")
    spec_ = node.NodeSpec(name=NODE, directory=tmp_path / "node")
    async with apiserver.serving() as api_server:
        api_server.kubeconfig(tmp_path / "admin", "admin")
        api_server.kubeconfig(tmp_path / "daemon", "drawbar:drawbar-node", node=NODE)
        connection = config.from_kubeconfig(tmp_path / "admin")
        async with client.connecting(connection) as api:
            await deployment.apply(api)
            options = settings.Settings(
                node_name=NODE,
                kubeconfig=str(tmp_path / "daemon"),
                kubelet_dir=spec_.directory,
                cdi_dir=spec_.cdi,
                sysfs=tmp_path / "sys",
                uevents=f"unix:{tmp_path / 'uevents'}",
                health=health or policy.Policy(),
                local_pool=residents.Selection(**{"slots": ("1",)} | wanted),
            )
            async with server.serving(connection, [spec_]) as kubelets:
                task = asyncio.Task(daemon.run(options))
                try:
                    yield World(tmp_path, api, tree, kubelets)
                finally:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task


@pytest.mark.timeout(60)
async def test_a_device_of_the_node_is_published_prepared_and_published_again_after_a_kubelet_restart(
    tmp_path, until
):
    async with world(tmp_path) as cluster:
        address = await cluster.attach(1, gpu(1))
        await cluster.attach(2, gpu(2))

        def bound(found):
            return "driver" in found.get(NAME, {}).get("attributes", {})

        # It may be published a moment before the kernel has bound its driver.
        devices = await until(cluster.devices, bound)
        assert list(devices) == [NAME], "slot 2 may be a fabric's"
        attributes = devices[NAME]["attributes"]
        assert attributes["class"] == {"string": "gpu"}
        assert attributes["serial"] == {"string": SERIAL.format(1)}
        assert attributes["resource.kubernetes.io/pciBusID"] == {"string": address}
        (one,) = await cluster.list(kinds.SLICE)

        prepared = await cluster.prepare(await cluster.claim(NAME))
        assert not prepared.error
        assert (prepared.devices[0].pool_name, prepared.devices[0].device_name) == (NODE, NAME)
        (file,) = (tmp_path / "node" / "cdi").glob("*.json")
        (device,) = files.read(file).devices
        assert any(entry.endswith(f"_PCI_ADDRESS={address}") for entry in device.edits.env)

        await cluster.kubelets.restart(NODE)

        async def uids():
            return [found["metadata"]["uid"] for found in await cluster.list(kinds.SLICE)]

        await until(uids, lambda found: found not in ([], [one["metadata"]["uid"]]))
        await until(cluster.devices, lambda found: found.get(NAME, {}).get("attributes") == attributes)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("driver", [DRIVER, "another.example.com"])
async def test_a_device_that_a_fabric_attaches_is_never_the_nodes_whatever_slots_it_has(
    tmp_path, until, driver
):
    async with world(tmp_path, slots=("*",)) as cluster:
        await cluster.attach(1, gpu(1))
        await cluster.attach(2, gpu(2))
        await until(cluster.devices, lambda found: len(found) == 2)
        body = scenes.document(
            "fab.x",
            NODE,
            held=True,
            driver=driver,
            identity={"deviceClass": "gpu", "serial": SERIAL.format(2)},
        )
        await cluster.api.create(kinds.ATTACHMENT, body, into=dict)
        await until(cluster.devices, lambda found: list(found) == [NAME])


@pytest.mark.timeout(60)
async def test_a_disk_of_the_host_is_not_offered_and_a_free_one_is(tmp_path, until):
    async with world(tmp_path, classes=("nvme", "gpu"), selector="true") as cluster:
        # The host's /proc lies beside the mocked tree; this one says that pid 1 is the host's.
        proc = tmp_path / "proc"
        (proc / "self" / "ns").mkdir(parents=True)
        (proc / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
        (proc / "1").mkdir()
        (proc / "swaps").write_text("Filename Type Size Used Priority\n")
        await cluster.attach(1, DISK)
        await until(cluster.devices, lambda found: list(found) == ["nvme-sn1"])
        number = next((tmp_path / "sys").glob("class/block/nvme*/dev")).read_text().strip()
        (proc / "1" / "mountinfo").write_text(f"1 0 {number} / /var rw - ext4 /dev/root rw\n")
        # Anything that changes makes it be looked at again.
        await cluster.attach(2, gpu(2))
        await until(cluster.devices, lambda found: not found)


@pytest.mark.timeout(60)
async def test_a_device_that_is_pulled_is_gone_and_back_under_its_name(tmp_path, until):
    async with world(tmp_path) as cluster:
        await cluster.attach(1, gpu(1))
        await until(cluster.devices, bool)
        await asyncio.to_thread(cluster.tree.surprise_remove, 1)
        await until(lambda: cluster.list(kinds.SLICE), lambda found: not found)
        await cluster.attach(1, gpu(1))
        await until(cluster.devices, lambda found: list(found) == [NAME])


@pytest.mark.timeout(60)
async def test_a_device_that_is_pulled_from_its_claim_stays_with_a_taint_until_the_claim_lets_go(
    tmp_path, until
):
    soon = policy.Policy(interval_seconds=1.0, arrival_seconds=0.0)
    async with world(tmp_path, health=soon) as cluster:
        await cluster.attach(1, gpu(1))
        await until(cluster.devices, bool)
        claim = await cluster.claim(NAME)
        assert not (await cluster.prepare(claim)).error
        await asyncio.to_thread(cluster.tree.surprise_remove, 1)
        tainted = await until(cluster.devices, lambda found: "taints" in found.get(NAME, {}))
        (taint,) = tainted[NAME]["taints"]
        assert (taint["key"], taint["effect"]) == (f"{DRIVER}/device-lost", "NoExecute")
        assert tainted[NAME]["attributes"]["class"] == {"string": "gpu"}
        assert not (await cluster.unprepare(claim)).error
        await until(lambda: cluster.list(kinds.SLICE), lambda found: not found)


@pytest.mark.timeout(60)
async def test_a_pool_that_is_turned_off_is_withdrawn(tmp_path, until):
    async with world(tmp_path, enabled=False) as cluster:
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "left-over"},
            "spec": {
                "driver": DRIVER,
                "nodeName": NODE,
                "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": NAME}],
            },
        }
        await cluster.api.create(kinds.SLICE, body, into=dict)
        await until(lambda: cluster.list(kinds.SLICE), lambda found: not found)


def test_a_cdi_file_of_somebody_else_that_names_our_device_is_found(tmp_path):
    edits = spec.ContainerEdits(env=("A=1",))
    content = spec.Spec(kind=f"{DRIVER}/device", devices=(spec.Device(name="u-gpu", edits=edits),))
    for name in (f"{DRIVER}-u.json", "copy.json"):
        files.write(tmp_path / name, content)
    (conflict,) = publisher.conflicts(tmp_path, DRIVER)
    assert conflict.file == tmp_path / "copy.json"
    assert conflict.effect is files.Effect.NOBODY_WINS
