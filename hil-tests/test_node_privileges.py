"""With how few capabilities the node daemon works on a real kernel, and what it would lack without each of them.

The file systems are those of the machine here, /sys writable and every file in /dev there; so this is about the kernel's
own checks, and says nothing about the device cgroup, seccomp or a security module of a container runtime.
"""

import json
import signal
import sys
from pathlib import Path

import pytest
import yaml
from lab import handover

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]

VALUES = Path(__file__).parents[1] / "deploy" / "drawbar" / "values.yaml"
LIMITED = "/run/lab/limited"
BITS = {"DAC_READ_SEARCH": 2, "NET_ADMIN": 12, "SYS_PTRACE": 19, "SYS_ADMIN": 21}
# Its first argument is a list of bits, the others are the program that gets these capabilities and no others.
WRAPPER = f"""#!{sys.executable} -IS
import ctypes, json, os, sys
kept = json.loads(sys.argv[1])
for bit in range(64):
    if bit not in kept:
        ctypes.CDLL(None).prctl(24, bit, 0, 0, 0)
os.execv(sys.argv[2], sys.argv[2:])
"""
# Holds a disk open as a user who is not root.
HOLDER = """
import os, sys
os.set_inheritable(os.open("/dev/nvme0n1", os.O_RDONLY), True)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
print("open", flush=True)
os.execv("/bin/sleep", ["sleep", "600"])
"""
# What each capability is for, tried by itself.
PROBE = """
import json, os, socket
from pathlib import Path
from drawbar.driver.node.classes import users
found = {}
config = Path("/sys/bus/pci/devices/0000:01:00.0/config").read_bytes()
found["config"] = len(config) > 64
uevents = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 15)
try:
    uevents.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)
    found["buffer"] = True
except OSError:
    found["buffer"] = False
status = os.stat("/dev/nvme0n1")
numbers = users.Numbers(block=True, major=os.major(status.st_rdev), minor=os.minor(status.st_rdev))
found["openers"] = bool(users.find_openers(Path("/proc"), {numbers: "/dev/nvme0n1"}))
print(json.dumps(found))
"""
EVERYTHING = {"config": True, "buffer": True, "openers": True}
LOST = {"SYS_ADMIN": "config", "NET_ADMIN": "buffer", "SYS_PTRACE": "openers", "DAC_READ_SEARCH": "openers"}


def build_limited_command(*names):
    return LIMITED, json.dumps([BITS[name] for name in names])


async def probe(node, *names):
    done = await node.guest.run(*build_limited_command(*names), sys.executable, "-c", PROBE)
    assert done.status == 0, done.errors
    return json.loads(done.output)


async def test_a_daemon_with_four_capabilities_lends_a_disk_sees_its_user_and_takes_it_back(node):
    assert sorted(yaml.safe_load(VALUES.read_text())["node"]["capabilities"]) == sorted(BITS)
    await node.guest.write(LIMITED, WRAPPER, mode=0o755)
    await node.end_daemon()
    program, arguments = node.layout.program, node.arguments()
    async with node.guest.process(*build_limited_command(*BITS), program, *arguments) as daemon:
        await daemon.says("the kubelet registered the driver", 480)
        assert "is missing" not in daemon.errors
        lent = await handover.attach_device(node, await node.chassis.disk("limited"), "port-1")
        async with node.guest.process(sys.executable, "-c", HOLDER) as holder:
            await holder.says("open")
            assert await probe(node, *BITS) == EVERYTHING
            for name, what in LOST.items():
                rest = [bit for bit in BITS if bit != name]
                assert await probe(node, *rest) == EVERYTHING | {what: False}, name
            await handover.ask_back(node, lent)
            condition = await handover.wait_for_refusal(node, lent, saying="held by pid")
            assert "(sleep), /dev/nvme0n1" in condition["message"]
            await holder.signal(signal.SIGKILL)
            await holder.wait()
        await handover.take_back(node, lent)
        assert await node.slot("1") == ("0", "0")
        await daemon.signal(signal.SIGTERM)
        assert (await daemon.wait()).status == 0
    await node.start_daemon()
    await node.ready()
