"""What the methods of attaching have in common."""

from drawbar.fabric import contract
from drawbar.fabric.redfish import views

DEVICE_GROUPS = {"g1": "2", "g2": "2", "g3": "12", "g4": ""}


def test_devices_that_some_hosts_cannot_have_are_named_once():
    devices = {
        name: contract.Device(id=name, device_class="gpu", model="M", reach_groups=frozenset(groups))
        for name, groups in DEVICE_GROUPS.items()
    }
    hosts = {
        name: contract.Host(id=name, name=name, reach_groups=frozenset(groups))
        for name, groups in {"h1": "1", "h2": "2", "h3": "13", "h4": ""}.items()
    }
    assert views.describe_unreached(devices, hosts, "resource zone") == (
        "g1, g2 are in no resource zone of h1, h3",
    )


def test_many_names_are_counted():
    assert views.name_some(list("abcdefg")) == "a, b, c, d, e and 2 more"
