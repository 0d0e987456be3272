"""What a view shows beyond its limits, while a part is unread, and while attaches run."""

import pytest

from drawbar.fabric import budget, contract, errors
from drawbar.fabric.redfish import views


def device(name):
    return contract.Device(id=name, device_class=contract.DeviceClass.GPU)


def host(name, *states):
    ports = tuple(contract.Port(id=f"{name}/{number}", state=state) for number, state in enumerate(states))
    return contract.Host(id=name, name=name, ports=ports)


FREE, USED = contract.PortState.FREE, contract.PortState.USED
VIEW = views.View(
    devices={name: device(name) for name in ("a", "b")},
    hosts={"h1": host("h1", FREE, USED), "h2": host("h2")},
)


@pytest.mark.parametrize(
    ("limits", "is_exceeded"),
    [
        (budget.Limits(devices=2, hosts=2), False),
        (budget.Limits(devices=1, hosts=2), True),
        (budget.Limits(devices=2, hosts=1), True),
    ],
)
def test_a_view_is_counted_against_the_limits(limits, is_exceeded):
    assert bool(views.find_excess(VIEW, budget.Listing(limits, "f"))) is is_exceeded


def test_only_known_devices_and_hosts_are_kept():
    kept = views.keep_known(VIEW, ["a", "gone"], {"h2"})
    assert (list(kept.devices), list(kept.hosts)) == (["a"], ["h2"])


@pytest.mark.parametrize(
    ("device_id", "unread", "is_refused"),
    [
        ("a", {}, False),
        ("a", {"/e/1": "it is sick"}, False),
        ("c", {}, False),
        ("c", {"/e/1": "it is sick"}, True),
        (None, {"/e/1": "it is sick"}, False),
    ],
)
def test_a_device_that_may_be_unread_is_not_judged(device_id, unread, is_refused):
    view = views.View(devices=VIEW.devices, unread=unread)
    if not is_refused:
        views.check_read(view, device_id)
        return
    with pytest.raises(errors.Unavailable, match="it is sick"):
        views.check_read(view, device_id)


@pytest.mark.parametrize(
    ("pending", "states"),
    [
        ({}, [FREE, USED]),
        ({"a": ("h1", "h1/0")}, [USED, USED]),
        ({"a": None}, [FREE, USED]),
        ({"a": ("gone", "gone/0")}, [FREE, USED]),
    ],
    ids=["none", "attach", "detach", "host that is gone"],
)
def test_the_port_of_an_attach_in_flight_is_in_use(pending, states):
    hosts = {each.id: each for each in views.reserve_ports(VIEW.hosts, pending)}
    assert [port.state for port in hosts["h1"].ports] == states
