"""Network interfaces of this very machine, and what is made of them."""

import asyncio
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from drawbar.driver.node.inventory import netdevs

SHOWN = {path.name for path in Path("/sys/class/net").iterdir() if path.is_symlink()}
IDLE = netdevs.Netdev()


async def test_the_kernel_lists_its_interfaces_also_in_a_thread_of_a_running_loop():
    interfaces = await asyncio.to_thread(netdevs.read)
    assert set(interfaces) == SHOWN
    lo = interfaces["lo"]
    assert lo.addresses == () or "127.0.0.1/8" in lo.addresses


@pytest.mark.parametrize(
    ("changes", "use"),
    [
        ({}, None),
        ({"addresses": ("fe80::1/64",)}, None),
        ({"addresses": ("169.254.0.9/16",)}, None),
        ({"addresses": ("fe80::1/64", "192.0.2.2/24")}, "has the address 192.0.2.2/24"),
        ({"addresses": ("2001:db8::2/64",)}, "has the address 2001:db8::2/64"),
        ({"master": "bond0"}, "belongs to bond0"),
        ({"above": ("eth0.100", "eth0.200")}, "carries eth0.100"),
        ({"addresses": ("fe80::1/64",), "is_way_out": True}, "has the default route"),
    ],
)
def test_an_interface_is_in_use_by_address_master_or_upper_interface(changes, use):
    netdev = msgspec.structs.replace(IDLE, **changes)
    assert netdev.use == use
    assert netdevs.select_used(["eth0"], {"eth0": netdev}) == ({} if use is None else {"eth0": use})


def test_an_interface_that_this_namespace_does_not_have_is_held():
    assert set(netdevs.select_used(["eth0", "eth1"], {"eth0": IDLE})) == {"eth1"}
    assert "no-such-interface" in (netdevs.find_used(["no-such-interface"]) or {})


PAIR = """
import pyroute2
from drawbar.driver.node.inventory import netdevs
with pyroute2.IPRoute() as route:
    route.link("add", ifname="lower", kind="veth", peer="upper")
print({name: netdev.above for name, netdev in netdevs.read().items() if netdev.above})
"""


def test_upper_interfaces_are_read_from_the_kernel():
    # Of the kinds of interface that refer to another one every kernel has this; a VLAN's does so alike.
    command = ("unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", PAIR)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and ("unshare" in done.stderr or "not supported" in done.stderr):
        pytest.skip(f"no network namespace with a pair of interfaces can be made here: {done.stderr[-200:]}")
    assert done.stdout.strip() == "{'upper': ('lower',), 'lower': ('upper',)}", done.stderr


ROUTED = """
import pyroute2
from drawbar.driver.node.inventory import netdevs
with pyroute2.IPRoute() as route:
    route.link("add", ifname="lower", kind="veth", peer="upper")
    for name in ("lower", "upper"):
        route.link("set", index=route.link_lookup(ifname=name)[0], state="up")
    assert not [name for name, netdev in netdevs.read().items() if netdev.is_way_out]
    index = route.link_lookup(ifname="lower")[0]
    route.addr("add", index=index, address="169.254.0.9", prefixlen=16)
    route.route("add", dst="default", gateway="169.254.0.1", oif=index)
print([name for name, netdev in netdevs.read().items() if netdev.is_way_out])
"""


def test_the_way_out_of_the_host_is_read_from_the_kernel():
    command = ("unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", ROUTED)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and ("unshare" in done.stderr or "not supported" in done.stderr):
        pytest.skip(f"no network namespace with a pair of interfaces can be made here: {done.stderr[-200:]}")
    assert done.stdout.strip() == "['lower']", done.stderr


MULTIPATH = """
import pyroute2
from drawbar.driver.node.inventory import netdevs
with pyroute2.IPRoute() as route:
    hops = []
    for number in (1, 2):
        route.link("add", ifname=f"way{number}", kind="veth", peer=f"end{number}")
        for name in (f"way{number}", f"end{number}"):
            index = route.link_lookup(ifname=name)[0]
            route.link("set", index=index, state="up")
        index = route.link_lookup(ifname=f"way{number}")[0]
        route.addr("add", index=index, address=f"169.254.{number}.9", prefixlen=24)
        hops.append({FAMILY_HOP})
    route.route("add", dst="default", family={FAMILY}, multipath=hops)
print(sorted(name for name, netdev in netdevs.read().items() if netdev.is_way_out))
"""
HOPS = {
    2: '{"gateway": f"169.254.{number}.1", "oif": index}',
    10: '{"gateway": f"fe80::{number}", "oif": index}',
}


@pytest.mark.parametrize("family", HOPS, ids=["IPv4", "IPv6"])
def test_each_hop_of_the_default_route_is_a_way_out(family):
    program = MULTIPATH.replace("{FAMILY_HOP}", HOPS[family]).replace("{FAMILY}", str(family))
    command = ("unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", program)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and ("unshare" in done.stderr or "not supported" in done.stderr):
        pytest.skip(f"no network namespace with a pair of interfaces can be made here: {done.stderr[-200:]}")
    assert done.stdout.strip() == "['way1', 'way2']", done.stderr


RENAMED = """
import fcntl, socket
from drawbar.driver.node.inventory import netdevs
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
    fcntl.ioctl(asking, 0x8923, b"lo".ljust(16, b"\\0") + b"\\xff".ljust(16, b"\\0"))  # SIOCSIFNAME
print([ascii(name) for name in netdevs.read()])
"""


def test_a_name_that_is_not_utf_8_is_the_one_that_sysfs_is_read_with():
    command = ("unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", RENAMED)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and ("unshare" in done.stderr or "not supported" in done.stderr):
        pytest.skip(f"no network namespace can be made here: {done.stderr[-200:]}")
    assert "'\\\\ufffd'" in done.stdout, done.stderr


def test_discovery_alone_does_not_pay_for_netlink():
    code = (
        "import sys; from drawbar.driver.node.inventory import netdevs; sys.exit('pyroute2' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
