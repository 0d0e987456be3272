"""A card is missing its interfaces if all of them are elsewhere, and only if its driver makes some."""

import pytest
from tests.scenes import cards

from drawbar.driver.node import classes
from drawbar.driver.node.classes import interfaces
from drawbar.driver.node.inventory import model
from drawbar.fabric.contract import DeviceClass


def port(number=0, driver="mlx5_core", **fields):
    return cards.function(f"0000:01:00.{number}", DeviceClass.NIC, driver=driver, **fields)


def node(path, subsystem):
    return {
        "device_nodes": (model.DeviceNode(path=path, major=1, minor=2, block=False, subsystem=subsystem),)
    }


RDMA = node("/dev/infiniband/uverbs0", "infiniband_verbs")


CASES = {
    "an interface is here": ([port(net_interfaces=("ens1",))], False),
    "the interface is elsewhere": ([port()], True),
    "the interfaces of both ports are elsewhere": ([port(0), port(1)], True),
    "the first functions of a Chelsio T6 have none": (
        [port(0, "cxgb4"), port(1, "cxgb4"), port(4, "cxgb4", net_interfaces=("ens1",))],
        False,
    ),
    "the interface of a card with RDMA over Ethernet is elsewhere": ([port(**RDMA)], True),
    "no driver": ([port(driver=None)], False),
    "a driver for virtual functions alone": ([port(driver="pci-pf-stub")], False),
    "passed through": ([port(driver="vfio-pci")], False),
    "a driver in user space": ([port(driver="uio_pci_generic", **node("/dev/uio0", "uio"))], False),
    "another class": ([cards.function(driver="nvidia")], False),
    "the network port of an FPGA is elsewhere": (
        [cards.function("0000:01:00.0", DeviceClass.FPGA, driver="dfl-pci"), port(1, "i40e")],
        True,
    ),
}


def find_obstacle(sysfs, functions, link_layer="Ethernet"):
    for function in functions:
        if function.device_nodes == RDMA["device_nodes"]:
            shown = sysfs / function.path / "infiniband" / "mlx5_0" / "ports" / "1" / "link_layer"
            shown.parent.mkdir(parents=True)
            shown.write_text(f"{link_layer}\n")
    return interfaces.find_obstacle(model.Card(functions=tuple(functions)), classes.Host.from_sysfs(sysfs))


@pytest.mark.parametrize(("functions", "is_absent"), CASES.values(), ids=CASES)
def test_an_interface_is_missed_only_where_the_driver_makes_one(tmp_path, functions, is_absent):
    absence = find_obstacle(tmp_path, functions)
    assert (absence is not None) is is_absent
    assert not is_absent or "no network interface of 0000:01:00" in absence


def test_rdma_without_ethernet_has_no_interface(tmp_path):
    assert find_obstacle(tmp_path, [port(**RDMA)], "InfiniBand") is None


def test_an_interface_whose_name_no_runtime_takes_is_named_with_the_remedy(tmp_path):
    obstacle = find_obstacle(tmp_path, [port(0), port(1, net_interfaces=("ens1", "\ufffdx"))])
    assert obstacle.startswith("the name \ufffdx of a network interface of 0000:01:00.1 is not UTF-8")
    assert "ip link set dev ifN name NAME" in obstacle
