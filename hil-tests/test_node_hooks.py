"""An administrator's programs on a real kernel: they make a device ready before its pod has it, and clean it after."""

import asyncio
import re
import signal

import pytest
import pytest_asyncio
from lab import cluster, waiting, worker

pytestmark = pytest.mark.asyncio(loop_scope="session")

NAMESPACE = re.compile(r"/dev/nvme\d+n\d+")
# On the disk that outlives a reset.
FOLDER, RUNS, GO = (f"{worker.KUBELET}/{name}" for name in ("lab-hooks", "hook-runs", "hooks-go"))
PROGRAM = f"""#!/bin/sh
set -eu
disk=$(basename "$DRAWBAR_SYSFS/bus/pci/devices/$DRAWBAR_PCI_ADDRESS"/nvme/nvme*/nvme*n1)
printf 'for %s' "$DRAWBAR_SERIAL" | dd of="/dev/$disk" bs=512 seek=3 conv=sync,notrunc,fsync status=none
echo programmed >> {RUNS}
"""
CLEAN = f"#!/bin/sh\necho cleaned >> {RUNS}\n"
SLOW = f"""#!/bin/sh
echo "$(basename "$0") begun" >> {RUNS}
while [ ! -e {GO} ]; do sleep 0.2; done
echo "$(basename "$0") ended" >> {RUNS}
"""
STUCK = "#!/bin/sh\necho loading bitstream\nsleep 4711 &\nsleep 4711\n"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def hooked_node(node):
    """Run the node's daemon with a directory of hooks, and yield its flags."""
    await node.guest.make_folder(FOLDER)
    scripts = {"program": PROGRAM, "clean": CLEAN, "stuck": STUCK, "slow-program": SLOW, "slow-clean": SLOW}
    for name, script in scripts.items():
        await node.guest.write(f"{FOLDER}/{name}", script, mode=0o755)
    flags = ("--initialise-hooks", FOLDER)
    await node.end_daemon()
    await node.start_daemon(*flags)
    await node.ready()
    yield flags
    await node.end_daemon()
    await node.start_daemon()
    await node.ready()


async def attach_disk(node, name, port, *, erase=False, **hooks):
    """Attach a disk for a claim with these hooks; return it, and its device."""
    disk = await node.chassis.disk(name)
    device = cluster.Device(device=disk.name, serial=disk.serial)
    claim = await node.cluster.claim(name, device, node=node.name)
    asked = {what: {"hook": hook, "timeoutSeconds": seconds} for what, (hook, seconds) in hooks.items()}
    await node.cluster.intend(claim, device, node=node.name, erase=erase, set_up=asked)
    await node.chassis.plug(disk, port)
    await node.cluster.say_attached(device, port=port)
    return disk, device


async def give_back(node, disk, device):
    await node.cluster.deallocate(disk.name)
    await node.cluster.begin_release(device)
    await node.cluster.wait_until_released(device)
    await node.chassis.out(disk)
    await node.cluster.end_release(device)


async def test_hooks_initialise_a_device_once_for_its_pod_and_clean_it(node, hooked_node):
    disk, device = await attach_disk(
        node, "disk-p", "port-1", initialise=("program", 60), cleanUp=("clean", 60)
    )
    await node.cluster.visible(device)
    await node.end_daemon(signal.SIGKILL)
    await node.start_daemon(*hooked_node)
    await node.ready()
    await node.cluster.pod("pod-p", "disk-p", node=node.name)
    pod = await node.cluster.running_pod("pod-p")
    (path,) = [path for path in await node.device_nodes(pod) if NAMESPACE.fullmatch(path)]
    done = await node.run_in_container(pod, "dd", f"if={path}", "bs=512", "skip=3", "count=1", "status=none")
    assert done.output.startswith(f"for {disk.serial}"), done.errors
    await node.cluster.end_pod("pod-p")
    await give_back(node, disk, device)
    assert (await node.guest.read(RUNS)).split() == ["programmed", "cleaned"]


async def test_a_hook_that_hangs_fails_with_its_words_and_leaves_no_process(node, hooked_node):
    disk, device = await attach_disk(node, "disk-q", "port-1", initialise=("stuck", 2))
    reported = await waiting.until(
        lambda: node.cluster.condition(device, "Visible"),
        lambda condition: condition.get("status") == "False",
    )
    assert reported["reason"] == "HookFailed"
    assert "stuck" in reported["message"]
    running = await node.guest.output("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "sleep 4711" not in running
    await give_back(node, disk, device)


async def wait_until_begun(node, hook, times):
    """Return once a hook has begun so many times, and the guest's disk has it."""
    await waiting.until(
        lambda: node.guest.output("sh", "-c", f"cat {RUNS} 2>/dev/null || true"),
        lambda runs: runs.splitlines().count(f"{hook} begun") >= times,
    )
    # It has to be found after a reset.
    await node.guest.output("sync")


async def test_after_a_reset_in_the_middle_of_a_hook_a_device_is_made_ready_and_clean_all_the_same(
    node, hooked_node
):
    await node.guest.output("rm", "-f", RUNS, GO)
    disk, device = await attach_disk(
        node, "disk-s", "port-3", erase=True, initialise=("slow-program", 900), cleanUp=("slow-clean", 900)
    )
    await wait_until_begun(node, "slow-program", 1)
    await node.reset(*hooked_node)
    await wait_until_begun(node, "slow-program", 2)
    assert (await node.cluster.condition(device, "Visible")).get("status") != "True"
    await node.guest.write(GO, "")
    await node.cluster.visible(device)
    await node.cluster.pod("pod-s", "disk-s", node=node.name)
    pod = await node.cluster.running_pod("pod-s")
    (path,) = [path for path in await node.device_nodes(pod) if NAMESPACE.fullmatch(path)]
    write = f"printf secret | dd of={path} bs=512 seek=9 conv=sync,fsync,notrunc status=none"
    written = await node.run_in_container(pod, "sh", "-c", write)
    assert written.status == 0, written.errors
    await node.cluster.end_pod("pod-s")
    await node.guest.output("rm", GO)
    await node.cluster.deallocate(disk.name)
    await node.cluster.begin_release(device)
    await wait_until_begun(node, "slow-clean", 1)
    await node.reset(*hooked_node)
    await wait_until_begun(node, "slow-clean", 2)
    assert (await node.cluster.condition(device, "Released")).get("status") != "True"
    await node.guest.write(GO, "")
    await node.cluster.wait_until_released(device)
    await node.chassis.out(disk)
    await node.cluster.end_release(device)
    assert b"secret" not in await asyncio.to_thread(disk.file.read_bytes)
