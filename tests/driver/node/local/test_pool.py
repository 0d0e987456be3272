"""The node's own devices as Prepare, the publisher and the health monitor ask for them."""

import pytest
from tests.scenes import attachments as scenes

from drawbar.driver.api import attachments, meta, slices
from drawbar.driver.node.classes import users
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.health import verdicts
from drawbar.driver.node.inventory import index
from drawbar.driver.node.local import pool, selections
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import sysfs

NODE = "node-1"
SERIAL = "48-b0-2d-00-00-00-00-01"
NAME = f"gpu-{SERIAL}"
LINK = verdicts.Taint(key="link-narrow", value="x4", effect=verdicts.Effect.NONE)
ILL = verdicts.Verdict(status=verdicts.Status.UNHEALTHY, message="ill", taints=(LINK,))


class Health:
    """Records the devices that it has to watch."""

    def __init__(self):
        self.watched, self.verdicts = {}, {}

    def verdict(self, key):
        return self.verdicts.get(key, verdicts.UNKNOWN)

    def watch(self, key, supplier):
        self.watched[key] = supplier

    def unwatch(self, key):
        del self.watched[key]


class PoolHost:
    """One host with a GPU and a CXL memory device, and the pool of it."""

    def __init__(self, tmp_path, *, held_back=lambda: None, failed=lambda _: None, **wanted):
        self.tree = sysfs.SysfsTree.create(tmp_path / "sys", slots=3)
        self.tree.attach(
            1, sysfs.MockDevice(device_class=DeviceClass.GPU, vendor=0x10DE, device=0x2330, serial=SERIAL)
        )
        self.tree.attach(
            2,
            sysfs.MockDevice(
                device_class=DeviceClass.CXL_MEMORY,
                vendor=0x1AF4,
                device=1,
                serial="0x12",
                memory_bytes=1 << 30,
            ),
        )
        self.inventory = reader.read(tmp_path / "sys")
        self.attached, self.held, self.health = [], set(), Health()
        self.pool = pool.LocalPool(
            driver="drawbar.dev",
            node_name=NODE,
            selection=selections.Selection(**{"slots": ("*",), "classes": ("gpu", "cxl-memory")} | wanted),
            surroundings=pool.Surroundings(
                inventory=lambda: self.inventory,
                attached=lambda: self.attached,
                held=lambda: self.held,
                interfaces=lambda names: None,
                host=users.Host.from_sysfs(tmp_path / "sys"),
                boot_id="b",
                held_back=held_back,
                failed=failed,
            ),
            health=self.health,
        )

    async def names(self):
        return {offer.device.name for offer in await self.pool.survey(())}

    def attach(self, serial):
        self.attached.append(scenes.attachment(serial=serial))


MEMORY = "cxl-memory-00-00-00-00-00-00-00-12"


async def test_devices_of_the_chosen_classes_are_offered_with_attributes_and_memory(tmp_path):
    world = PoolHost(tmp_path)
    offers = {offer.device.name: offer.device for offer in await world.pool.survey(())}
    assert offers.keys() == {NAME, MEMORY}
    assert offers[NAME].attributes["serial"].string == SERIAL
    assert offers[MEMORY].capacity["memory"].value == "1Gi"


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        pytest.param({"enabled": False}, set(), id="off"),
        pytest.param({"classes": ("nvme",)}, set(), id="another-class"),
        pytest.param({"slots": ()}, set(), id="no-slot"),
        pytest.param({"slots": ("1",)}, {NAME}, id="one-slot"),
        pytest.param({"selector": 'device.attributes["drawbar.dev"].class == "gpu"'}, {NAME}, id="selector"),
        pytest.param({"selector": "false"}, set(), id="selector-that-wants-none"),
        pytest.param(
            {"selector": 'device.capacity["drawbar.dev"].memory.compareTo(quantity("1Gi")) >= 0'},
            {MEMORY},
            id="selector-that-cannot-be-answered-for-one",
        ),
    ],
)
async def test_the_configuration_decides_which_of_them_are_offered(tmp_path, wanted, names):
    assert await PoolHost(tmp_path, **wanted).names() == names


def test_a_device_is_found_by_its_name_whether_it_is_offered_or_not(tmp_path):
    world = PoolHost(tmp_path, enabled=False)
    assert world.pool.card(NODE, NAME).first.serial == SERIAL
    assert world.pool.device_class(NODE, NAME) == "gpu"
    assert world.pool.device_class(NODE, MEMORY) == "cxl-memory"
    assert world.pool.card(f"{NODE}/1", NAME) is not None


@pytest.mark.parametrize(
    ("name", "device"), [("fab/enc", NAME), (NODE, "gpu-x"), (NODE, "x"), ("node-2", NAME)]
)
def test_devices_of_other_pools_and_absent_devices_are_not_found(tmp_path, name, device):
    world = PoolHost(tmp_path)
    assert world.pool.card(name, device) is None
    assert world.pool.device_class(name, device) == "other"


async def test_a_device_attached_by_a_fabric_is_neither_offered_nor_found(tmp_path):
    world = PoolHost(tmp_path)
    world.attach(SERIAL)
    assert await world.names() == {MEMORY}
    assert world.pool.card(NODE, NAME) is None


PARENT = sysfs.MockDevice(
    device_class=DeviceClass.FPGA,
    vendor=0x8086,
    device=0x0B2B,
    serial="48-b0-2d-00-00-00-00-05",
    total_vfs=2,
    vf_driver="dfl-pci",
)
FUNCTION = f"fpga-{PARENT.serial}-vf1"


@pytest.mark.parametrize("deleting", [False, True])
async def test_the_virtual_functions_of_a_card_attached_by_hand_are_found_until_they_go(tmp_path, deleting):
    world = PoolHost(tmp_path, classes=("fpga",), virtual_functions=True)
    world.tree.attach(3, PARENT)
    world.tree.set_vfs(3, 2)
    world.inventory = reader.read(tmp_path / "sys")
    node = attachments.NodeReport(boot_id="b", pci_address=world.tree.address(3))
    conditions = (attachments.ATTACHED, attachments.VISIBLE)
    by_hand = scenes.attachment(*conditions, serial=PARENT.serial, node=node, deleting=deleting)
    world.attached.append(by_hand)
    assert world.pool.card(NODE, FUNCTION).first.physical_function == world.tree.address(3)
    assert world.pool.card(NODE, f"fpga-{PARENT.serial}") is None
    assert world.pool.lender(NODE, FUNCTION) is by_hand
    assert world.pool.virtual_functions(by_hand) == {FUNCTION, FUNCTION.replace("vf1", "vf0")}
    assert len(await world.names()) == (0 if deleting else 2)
    world.held.add((NODE, FUNCTION))
    taints = {offer.device.name: offer.taints for offer in await world.pool.survey(())}
    assert taints[FUNCTION] == ((pool.LEAVING,) if deleting else None)


async def test_a_claimed_device_stays_published_after_it_is_gone(tmp_path):
    world = PoolHost(tmp_path)
    published = await world.pool.survey(())
    key = verdicts.Key(pool=NODE, device=NAME)
    world.pool.watch(frozenset({key}))
    world.health.verdicts[key] = ILL
    world.inventory = index.Inventory(functions=())
    stored = published_as(published)
    assert await world.pool.survey(stored) == ()
    world.held.add((NODE, NAME))
    (kept,) = await world.pool.survey(stored)
    assert (kept.device.name, kept.pool, kept.taints) == (NAME, NODE, (LINK,))
    assert kept.device.attributes["serial"].string == SERIAL


def published_as(offers):
    spec = slices.SliceSpec(
        driver="drawbar.dev",
        pool=slices.Pool(name=NODE, generation=1, resource_slice_count=1),
        devices=tuple(offer.device for offer in offers),
    )
    return (slices.ResourceSlice(metadata=meta.ObjectMeta(name="s"), spec=spec),)


@pytest.mark.parametrize(
    ("recorded", "offered"),
    [
        pytest.param(f"{NODE}/2", f"{NODE}/2", id="further-pool"),
        pytest.param("", NODE, id="record-without-a-pool"),
        pytest.param("fab/enc", "", id="of-a-fabric"),
    ],
)
async def test_a_device_is_offered_where_its_claim_holds_it(tmp_path, recorded, offered):
    world = PoolHost(tmp_path)
    world.held.add((recorded, NAME))
    pools = {offer.device.name: offer.pool for offer in await world.pool.survey(())}
    assert pools == {NAME: offered, MEMORY: ""}


async def test_taints_are_unknown_until_the_device_was_looked_at(tmp_path):
    world = PoolHost(tmp_path, classes=("gpu",))

    async def taints():
        (offer,) = await world.pool.survey(())
        return offer.taints

    assert await taints() is None
    key = verdicts.Key(pool=NODE, device=NAME)
    world.pool.watch(frozenset({key}))
    assert await taints() is None
    world.health.verdicts[key] = ILL
    assert await taints() == (LINK,)
    world.health.verdicts[key] = verdicts.Verdict(status=verdicts.Status.HEALTHY)
    assert await taints() == ()


def test_just_the_devices_of_the_pool_are_watched_each_as_it_is_now(tmp_path):
    world = PoolHost(tmp_path)
    first, second = (verdicts.Key(pool=NODE, device=name) for name in (NAME, MEMORY))
    world.pool.watch(frozenset({first, second}))
    assert world.health.watched[first]().first.serial == SERIAL
    world.inventory = index.Inventory(functions=())
    assert world.health.watched[first]() is None
    world.pool.watch(frozenset({second}))
    assert world.health.watched.keys() == {second}


async def test_a_device_of_the_chosen_classes_has_conditions_for_which_a_pod_waits(tmp_path):
    world = PoolHost(tmp_path, bind_when_ready=("gpu",))
    offered = {offer.device.name: offer.device for offer in await world.pool.survey(())}
    assert offered[NAME].binds_to_node
    assert offered[NAME].binding_conditions == ("drawbar.dev/visible",)
    assert offered[NAME].binding_failure_conditions == ("drawbar.dev/node-failed",)
    assert not offered[MEMORY].binds_to_node
    assert not offered[MEMORY].binding_conditions


async def test_claims_are_followed_only_where_a_device_has_conditions(tmp_path):
    calls = []
    world = PoolHost(tmp_path / "without", held_back=lambda: calls.append("x"), bind_when_ready=("fpga",))
    await world.pool.survey(())
    assert not calls
    world = PoolHost(tmp_path / "with", held_back=lambda: calls.append("x"), bind_when_ready=("gpu",))
    await world.pool.survey(())
    assert calls


async def test_a_device_that_failed_for_a_claim_is_kept_from_others(tmp_path):
    taint = verdicts.Taint(key="attach-failed", value="HookFailed", effect=verdicts.Effect.NO_SCHEDULE)
    world = PoolHost(tmp_path, failed=lambda name: taint if name == NAME else None)
    tainted = {offer.device.name: offer.taints for offer in await world.pool.survey(())}
    assert taint in tainted[NAME]
    assert not tainted[MEMORY]
