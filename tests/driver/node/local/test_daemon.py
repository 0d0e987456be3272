"""The local pool of a whole daemon: kubelet double, API server double, mocked sysfs tree."""

import asyncio
import contextlib

import pytest
from tests.scenes import attachments as scenes
from tests.scenes import nodes

from drawbar.cdi import files, spec
from drawbar.driver.kube import config, kinds
from drawbar.driver.node.health import policy
from drawbar.driver.node.local import publisher, selections
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import sysfs
from drawbar.mocks.kubelet import node, server

NODE, DRIVER = nodes.NODE, nodes.DRIVER
SERIAL = "48-b0-2d-00-00-00-00-0{}"
CLASSES = ("gpu", "fpga")
NAME = "gpu-48-b0-2d-00-00-00-00-01"
DISK = sysfs.MockDevice(device_class=DeviceClass.NVME, vendor=0x1B36, device=0x10, serial="SN1")


def gpu(number):
    serial = SERIAL.format(number)
    return sysfs.MockDevice(device_class=DeviceClass.GPU, vendor=0x10DE, device=0x2330, serial=serial)


@contextlib.asynccontextmanager
async def world(tmp_path, health=None, **wanted):
    """Yield a node whose kubelet is the double, in the attribute `kubelets`."""
    spec_ = node.NodeSpec(name=NODE, directory=tmp_path / "kubelet")
    async with nodes.serving(
        tmp_path,
        kubelet_dir=spec_.directory,
        cdi_dir=spec_.cdi,
        health=health or policy.Policy(),
        local_pool=selections.Selection(**{"slots": ("1",), "classes": CLASSES} | wanted),
    ) as cluster:
        connection = config.from_kubeconfig(tmp_path / "admin")
        async with server.serving(connection, [spec_]) as cluster.kubelets:
            yield cluster


async def test_a_device_of_the_node_is_published_prepared_and_published_again_after_a_kubelet_restart(
    tmp_path, until
):
    async with world(tmp_path) as cluster:
        address = await cluster.plug(1, gpu(1))
        await cluster.plug(2, gpu(2))

        def has_driver(published):
            return "driver" in published.get(NAME, {}).get("attributes", {})

        # It may be published a moment before the kernel has bound its driver.
        devices = await until(cluster.list_devices, has_driver)
        assert list(devices) == [NAME], "slot 2 may be a fabric's"
        attributes = devices[NAME]["attributes"]
        assert attributes["class"] == {"string": "gpu"}
        assert attributes["serial"] == {"string": SERIAL.format(1)}
        assert attributes["resource.kubernetes.io/pciBusID"] == {"string": address}
        (slice_,) = await cluster.list(kinds.SLICE)

        prepared = await cluster.prepare(await cluster.allocate_claim(pool=NODE, device=NAME))
        assert not prepared.error
        assert (prepared.devices[0].pool_name, prepared.devices[0].device_name) == (NODE, NAME)
        (file,) = (tmp_path / "kubelet" / "cdi").glob("*.json")
        (device,) = files.read(file).devices
        assert any(entry.endswith(f"_PCI_ADDRESS={address}") for entry in device.edits.env)

        await cluster.kubelets.restart(NODE)

        async def uids():
            return [slice_["metadata"]["uid"] for slice_ in await cluster.list(kinds.SLICE)]

        await until(uids, lambda listed: listed not in ([], [slice_["metadata"]["uid"]]))
        await until(
            cluster.list_devices, lambda devices: devices.get(NAME, {}).get("attributes") == attributes
        )


@pytest.mark.parametrize("driver", [DRIVER, "another.example.com"])
async def test_a_device_attached_by_a_fabric_is_never_offered_as_local(tmp_path, until, driver):
    async with world(tmp_path, slots=("*",)) as cluster:
        await cluster.plug(1, gpu(1))
        await cluster.plug(2, gpu(2))
        await until(cluster.list_devices, lambda devices: len(devices) == 2)
        identity = {"deviceClass": "gpu", "serial": SERIAL.format(2)}
        body = scenes.document("fab.x", NODE, held=True, driver=driver, identity=identity)
        await cluster.api.create(kinds.ATTACHMENT, body, into=dict)
        await until(cluster.list_devices, lambda devices: list(devices) == [NAME])


async def test_a_disk_of_the_host_is_not_offered_and_a_free_one_is(tmp_path, until):
    async with world(tmp_path, classes=("nvme", "gpu"), selector="true") as cluster:
        # The host's /proc lies beside the mocked tree; in this one pid 1 is the host's.
        proc = tmp_path / "proc"
        (proc / "self" / "ns").mkdir(parents=True)
        (proc / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
        (proc / "1").mkdir()
        (proc / "swaps").write_text("Filename Type Size Used Priority\n")
        await cluster.plug(1, DISK)
        await until(cluster.list_devices, lambda devices: list(devices) == ["nvme-sn1"])
        number = next((tmp_path / "sys").glob("class/block/nvme*/dev")).read_text().strip()
        (proc / "1" / "mountinfo").write_text(f"1 0 {number} / /var rw - ext4 /dev/root rw\n")
        # Anything that changes makes it be looked at again.
        await cluster.plug(2, gpu(2))
        await until(cluster.list_devices, lambda devices: not devices)


async def test_a_device_that_is_pulled_is_gone_and_back_under_its_name(tmp_path, until):
    async with world(tmp_path) as cluster:
        await cluster.plug(1, gpu(1))
        await until(cluster.list_devices, bool)
        await asyncio.to_thread(cluster.tree.surprise_remove, 1)
        await until(lambda: cluster.list(kinds.SLICE), lambda slices: not slices)
        await cluster.plug(1, gpu(1))
        await until(cluster.list_devices, lambda devices: list(devices) == [NAME])


async def test_a_device_that_is_pulled_from_its_claim_stays_with_a_taint_until_the_claim_lets_go(
    tmp_path, until
):
    soon = policy.Policy(interval_seconds=1.0, arrival_seconds=0.0)
    async with world(tmp_path, health=soon) as cluster:
        await cluster.plug(1, gpu(1))
        await until(cluster.list_devices, bool)
        claim = await cluster.allocate_claim(pool=NODE, device=NAME)
        assert not (await cluster.prepare(claim)).error
        await asyncio.to_thread(cluster.tree.surprise_remove, 1)
        tainted = await until(cluster.list_devices, lambda devices: "taints" in devices.get(NAME, {}))
        (taint,) = tainted[NAME]["taints"]
        assert (taint["key"], taint["effect"]) == (f"{DRIVER}/device-lost", "NoExecute")
        assert tainted[NAME]["attributes"]["class"] == {"string": "gpu"}
        assert not (await cluster.unprepare(claim)).error
        await until(lambda: cluster.list(kinds.SLICE), lambda slices: not slices)


async def test_a_pool_that_is_turned_off_is_withdrawn(tmp_path, until):
    async with world(tmp_path, enabled=False) as cluster:
        pool = {"name": NODE, "generation": 1, "resourceSliceCount": 1}
        content = {"driver": DRIVER, "nodeName": NODE, "pool": pool, "devices": [{"name": NAME}]}
        await cluster.create(kinds.SLICE, "left-over", spec=content)
        await until(lambda: cluster.list(kinds.SLICE), lambda slices: not slices)


def test_a_cdi_file_of_another_program_that_names_our_device_is_found(tmp_path):
    edits = spec.ContainerEdits(env=("A=1",))
    content = spec.Spec(kind=f"{DRIVER}/device", devices=(spec.Device(name="u-gpu", edits=edits),))
    for name in (f"{DRIVER}-u.json", "copy.json"):
        files.write(tmp_path / name, content)
    (conflict,) = publisher.conflicts(tmp_path, DRIVER)
    assert conflict.file == tmp_path / "copy.json"
    assert conflict.effect is files.Effect.NOBODY_WINS


CARD = sysfs.MockDevice(
    device_class=DeviceClass.FPGA,
    vendor=0x8086,
    device=0x0B2B,
    serial=SERIAL.format(5),
    driver="dfl-pci",
    total_vfs=2,
    vf_device=0x0B2C,
    vf_driver="dfl-pci",
)
FUNCTIONS = [f"fpga-{SERIAL.format(5)}-vf{number}" for number in range(2)]


async def test_a_card_attached_by_hand_lends_its_virtual_functions_and_leaves_when_no_claim_has_one(
    tmp_path, until
):
    async with world(tmp_path, slots=(), virtual_functions=True) as cluster:
        await cluster.plug(1, CARD)
        await cluster.attach(deviceClass="fpga", serial=CARD.serial, pciID="8086:0b2b")
        await cluster.controller_says(connection={"port": "1", "slot": "1"})
        await until(cluster.conditions, lambda conditions: "Visible" in conditions)
        await asyncio.to_thread(cluster.tree.set_vfs, 1, 2)
        devices = await until(cluster.list_devices, lambda devices: sorted(devices) == FUNCTIONS)
        attributes = devices[FUNCTIONS[0]]["attributes"]
        assert attributes["fabric"] == {"string": "fab"}
        assert attributes["deviceID"] == {"string": "nvme-0"}
        assert attributes["physicalFunction"] == {"string": cluster.tree.address(1)}

        claim = await cluster.allocate_claim(pool=NODE, device=FUNCTIONS[1])
        assert not (await cluster.prepare(claim)).error
        await cluster.detach()
        devices = await until(cluster.list_devices, lambda devices: list(devices) == FUNCTIONS[1:])
        (taint,) = devices[FUNCTIONS[1]]["taints"]
        assert (taint["key"], taint["effect"]) == (f"{DRIVER}/in-use", "NoSchedule")
        conditions = await until(cluster.conditions, lambda conditions: "Released" in conditions)
        assert (conditions["Released"]["status"], conditions["Released"]["reason"]) == ("False", "InUse")
        assert f"claim default/c1 has {FUNCTIONS[1]}" in conditions["Released"]["message"]
        numvfs = cluster.tree.root / f"bus/pci/devices/{cluster.tree.address(1)}/sriov_numvfs"
        assert numvfs.read_text().strip() == "2", "nothing was undone"

        assert not (await cluster.unprepare(claim)).error
        await until(cluster.list_devices, lambda devices: not devices)
        await until(cluster.conditions, lambda conditions: conditions["Released"]["status"] == "True")
