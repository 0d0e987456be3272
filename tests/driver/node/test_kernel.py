"""What the kernel is asked through sysfs: one write at most, never a new file, and an end to every wait."""

import asyncio
import contextlib
import errno
import os
import threading
import time

import pytest

from drawbar.driver.node import errors, kernel

ADDRESS = "0000:01:00.0"
DEVICE = f"bus/pci/devices/{ADDRESS}"


@pytest.fixture
def tree(tmp_path):
    """Return a function with a driver, a slot, a memory block and a CXL region with its decoder."""
    device = tmp_path / DEVICE
    driver = tmp_path / "bus/pci/drivers/nvme"
    for folder in (device, driver):
        folder.mkdir(parents=True)
    (device / "driver").symlink_to(driver)
    for path, content in {
        f"{DEVICE}/remove": "",
        f"{DEVICE}/reset": "",
        f"{DEVICE}/sriov_numvfs": "2\n",
        f"{DEVICE}/sriov_drivers_autoprobe": "1\n",
        f"{DEVICE}/driver_override": "(null)\n",
        "bus/pci/drivers/nvme/unbind": "",
        "bus/pci/drivers/nvme/bind": "",
        "bus/pci/drivers_probe": "",
        "bus/pci/rescan": "",
        "bus/pci/slots/3/power": "1\n",
        "devices/system/memory/memory46/state": "online\n",
        "bus/cxl/drivers_probe": "",
        "bus/dax/drivers_autoprobe": "1\n",
        "bus/dax/devices/dax0.0/align": "",
        "bus/dax/drivers/device_dax/new_id": "",
        "bus/dax/drivers/device_dax/remove_id": "",
        "bus/dax/drivers/kmem/unbind": "",
        "devices/system/memory/auto_online_blocks": "online\n",
        "bus/cxl/devices/decoder0.0/create_ram_region": "region7\n",
        "bus/cxl/devices/decoder0.0/delete_region": "",
        "bus/cxl/devices/region0/commit": "1\n",
        "bus/cxl/devices/region0/size": "0x10000000\n",
        "bus/cxl/devices/decoder2.0/mode": "none\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    return tmp_path


CALLS = [
    pytest.param(lambda k: k.power_slot("3", on=False), "bus/pci/slots/3/power", "0\n", id="power off"),
    pytest.param(lambda k: k.unbind(ADDRESS), "bus/pci/drivers/nvme/unbind", f"{ADDRESS}\n", id="unbind"),
    pytest.param(lambda k: k.remove(ADDRESS), f"{DEVICE}/remove", "1\n", id="remove"),
    pytest.param(lambda k: k.reset(ADDRESS), f"{DEVICE}/reset", "1\n", id="reset"),
    pytest.param(lambda k: k.set_vfs(ADDRESS, 0), f"{DEVICE}/sriov_numvfs", "0\n", id="virtual functions"),
    pytest.param(
        lambda k: k.set_vf_probing(ADDRESS, on=False),
        f"{DEVICE}/sriov_drivers_autoprobe",
        "0\n",
        id="no probing",
    ),
    pytest.param(
        lambda k: k.override_driver(ADDRESS, "vfio-pci"),
        f"{DEVICE}/driver_override",
        "vfio-pci\n",
        id="driver override",
    ),
    pytest.param(
        lambda k: k.set_memory("memory46", "offline"),
        "devices/system/memory/memory46/state",
        "offline\n",
        id="memory",
    ),
    pytest.param(
        lambda k: k.create_region("decoder0.0"),
        "bus/cxl/devices/decoder0.0/create_ram_region",
        "region7\n",
        id="create region",
    ),
    pytest.param(
        lambda k: k.delete_region("decoder0.0", "region0"),
        "bus/cxl/devices/decoder0.0/delete_region",
        "region0\n",
        id="delete region",
    ),
    pytest.param(
        lambda k: k.set_region("region0", "commit", 0), "bus/cxl/devices/region0/commit", "0\n", id="commit"
    ),
    pytest.param(
        lambda k: k.set_decoder("decoder2.0", "mode", "ram"),
        "bus/cxl/devices/decoder2.0/mode",
        "ram\n",
        id="decoder",
    ),
    pytest.param(lambda k: k.bind_region("region0"), "bus/cxl/drivers_probe", "region0\n", id="bind region"),
    pytest.param(
        lambda k: k.bind_dax("dax0.0", "device_dax"),
        "bus/dax/drivers/device_dax/remove_id",
        "dax0.0\n",
        id="bind dax",
    ),
]


@pytest.mark.parametrize(("call", "path", "written"), CALLS)
async def test_a_call_writes_the_expected_text_to_its_file(tree, call, path, written):
    await call(kernel.Kernel(tree))
    assert (tree / path).read_text() == written


@pytest.mark.parametrize(
    ("call", "trigger", "setting", "meanwhile"),
    [
        (lambda k: k.bind_region("region0"), "bus/cxl/drivers_probe", "bus/dax/drivers_autoprobe", "0"),
        (
            lambda k: k.bind_dax("dax0.0", "device_dax"),
            "bus/dax/drivers/device_dax/new_id",
            "devices/system/memory/auto_online_blocks",
            "online_movable",
        ),
    ],
    ids=["autoprobe", "policy"],
)
async def test_a_setting_of_the_host_is_changed_for_one_write_alone(
    tree, until, call, trigger, setting, meanwhile
):
    before = (tree / setting).read_text()
    (tree / trigger).unlink()
    os.mkfifo(tree / trigger)
    full = os.open(tree / trigger, os.O_RDWR | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(full, bytes(4096))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(call(kernel.Kernel(tree)))

        async def text():
            return (tree / setting).read_text()

        await until(text, lambda now: now == f"{meanwhile}\n")
        os.read(full, 1 << 20)
    os.close(full)
    assert (tree / setting).read_text() == before


async def test_a_setting_of_the_host_is_as_before_after_a_refusal(tree):
    (tree / "bus/cxl/drivers_probe").unlink()
    with pytest.raises(errors.KernelRefused):
        await kernel.Kernel(tree).bind_region("region0")
    assert (tree / "bus/dax/drivers_autoprobe").read_text() == "1\n"


@pytest.mark.parametrize("policy", ["offline", "online_movable"])
async def test_a_policy_that_keeps_memory_movable_is_left_as_it_is(tree, policy):
    file = tree / "devices/system/memory/auto_online_blocks"
    file.write_text(policy)
    stamp = file.stat().st_mtime_ns
    await kernel.Kernel(tree).bind_dax("dax0.0", "device_dax")
    assert file.stat().st_mtime_ns == stamp


async def test_a_dax_device_loses_the_driver_that_it_has_and_no_other(tree):
    await kernel.Kernel(tree).unbind_dax("dax0.0", "kmem")
    assert (tree / "bus/dax/drivers/kmem/unbind").read_text() == ""
    (tree / "bus/dax/devices/dax0.0/driver").symlink_to(tree / "bus/dax/drivers/kmem")
    await kernel.Kernel(tree).unbind_dax("dax0.0", "kmem")
    assert (tree / "bus/dax/drivers/kmem/unbind").read_text() == "dax0.0\n"


async def test_a_function_is_bound_to_the_driver_that_fits(tree):
    (tree / DEVICE / "driver").unlink()
    await kernel.Kernel(tree).probe(ADDRESS)
    assert (tree / "bus/pci/drivers_probe").read_text() == f"{ADDRESS}\n"


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda k: k.power_slot("3", on=True), id="powered"),
        pytest.param(lambda k: k.unbind("0000:02:00.0"), id="no driver"),
        pytest.param(lambda k: k.probe(ADDRESS), id="bound to something"),
        pytest.param(lambda k: k.remove("0000:02:00.0"), id="no function"),
        pytest.param(lambda k: k.set_vfs(ADDRESS, 2), id="as many"),
        pytest.param(lambda k: k.set_memory("memory46", "online_movable"), id="online"),
        pytest.param(lambda k: k.set_memory("memory99", "offline"), id="no memory"),
        pytest.param(lambda k: k.delete_region("decoder0.0", "region9"), id="no region"),
        pytest.param(lambda k: k.set_region("region0", "size", 0x10000000), id="same number"),
        pytest.param(lambda k: k.set_decoder("decoder2.0", "mode", "none"), id="same word"),
    ],
)
async def test_a_satisfied_request_succeeds_without_a_write(tree, call):
    def content():
        return {
            path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tree.rglob("*") if path.is_file()
        }

    before = content()
    await call(kernel.Kernel(tree))
    assert content() == before


async def test_a_missing_file_is_refused_and_never_made(tree):
    power = tree / "bus/pci/slots/4/power"
    power.parent.mkdir()
    with pytest.raises(
        errors.KernelRefused, match=r"slots/4/power.*ENOENT.*driver behind the file"
    ) as raised:
        await kernel.Kernel(tree).power_slot("4", on=True)
    assert (raised.value.path, raised.value.number) == (str(power), errno.ENOENT)
    assert not power.exists()


@pytest.mark.parametrize(
    ("number", "reported"),
    [
        (errno.EBUSY, "still uses it"),
        (errno.EPERM, "as root"),
        (errno.ENODEV, "link and its power"),
        (errno.EBADMSG, "kernel's log"),
    ],
)
def test_a_refusal_names_file_cause_and_remedy(number, reported):
    refused = kernel.refusal("/sys/x", "1", OSError(number, "x"))
    assert "/sys/x" in str(refused)
    assert errno.errorcode[number] in str(refused)
    assert reported in str(refused)


@pytest.mark.parametrize("name", ["", "..", ".", "a/b", "../../etc", "3\n"])
async def test_no_name_leads_out_of_its_directory(tree, name):
    with pytest.raises(errors.KernelRefused, match="is not the name"):
        await kernel.Kernel(tree).power_slot(name, on=True)


async def test_a_device_that_goes_while_it_is_removed_is_removed(tmp_path):
    """The kernel answers ENODEV or the file is gone, because the function vanished after it was listed."""
    device = tmp_path / DEVICE
    device.mkdir(parents=True)

    class Vanishing(kernel.Kernel):
        def _exists(self, path):
            there = super()._exists(path)
            device.rename(tmp_path / "grave") if there else None
            return there

    await Vanishing(tmp_path).remove(ADDRESS)


@pytest.fixture
def stuck(tree):
    """Yield a slot whose `power` is a pipe that no process reads: opening it to write hangs until the test ends."""
    power = tree / "bus/pci/slots/3/power"
    power.unlink()
    os.mkfifo(power)
    yield tree
    for _ in range(2):
        os.close(os.open(power, os.O_RDONLY | os.O_NONBLOCK))
    os.set_blocking(reader := os.open(power, os.O_RDONLY | os.O_NONBLOCK), False)
    deadline = time.monotonic() + 10
    while _list_hanging_threads() and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    os.close(reader)


def _list_hanging_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("kernel: slot 3")]


async def test_a_write_that_hangs_is_reported_and_goes_on_alone(stuck):
    asked = kernel.Kernel(stuck, deadline_seconds=0.05)
    for _ in range(3):
        with pytest.raises(errors.KernelSilent, match=r"has not answered for \d+ s.*slots/3/power"):
            await asked.power_slot("3", on=False)
    assert len(_list_hanging_threads()) == 1


async def test_something_else_for_an_object_that_hangs_is_not_even_tried(stuck, until):
    asked = kernel.Kernel(stuck, deadline_seconds=0.05)
    with pytest.raises(errors.KernelSilent):
        await asked.power_slot("3", on=False)
    with pytest.raises(errors.KernelSilent, match="'0'"):
        await asked.power_slot("3", on=True)

    async def reset():
        # A slow machine may take longer for it than the deadline, which is short for what hangs.
        with contextlib.suppress(errors.KernelSilent):
            await asked.reset(ADDRESS)
        return (stuck / DEVICE / "reset").read_text()

    assert await until(reset, bool) == "1\n", "other objects go on"


async def test_a_cancelled_caller_leaves_the_write_to_the_next_one(tree):
    asked, go, calls = kernel.Kernel(tree), threading.Event(), []
    started, loop = asyncio.Event(), asyncio.get_running_loop()

    def wait_slowly():
        calls.append(1)
        loop.call_soon_threadsafe(started.set)
        go.wait(120)
        return "done"

    first = asyncio.Task(asked.run("x", "to be slow", wait_slowly))
    await started.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.Task(asked.run("x", "to be slow", wait_slowly))
    await asyncio.sleep(0)
    go.set()
    assert await second == "done"
    assert calls == [1]
    assert await asked.run("x", "to be quick", lambda: 2) == 2


async def test_no_caller_gets_the_answer_to_another_question_about_the_same_object(tree):
    asked, go = kernel.Kernel(tree), threading.Event()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(asked.run("x", "question one", lambda: go.wait(120) and "one"))
        await asyncio.sleep(0)
        with pytest.raises(errors.KernelSilent, match="question one"):
            await asked.run("x", "question two", lambda: "two")
        go.set()
    assert first.result() == "one"


async def test_no_more_than_a_bounded_number_of_calls_is_under_way(tree):
    asked, go = kernel.Kernel(tree), threading.Event()
    async with asyncio.TaskGroup() as tasks:
        for number in range(kernel.OUTSTANDING_MAX):
            tasks.create_task(asked.run(str(number), f"call {number}", lambda: go.wait(120)))
        await asyncio.sleep(0)
        with pytest.raises(errors.KernelSilent, match="call 0"):
            await asked.run("one more", "one more", lambda: None)
        go.set()


async def test_the_real_error_of_a_write_is_reported(tree):
    """/dev/full stands for a file that answers with an errno."""
    path = tree / DEVICE / "remove"
    path.unlink()
    path.symlink_to("/dev/full")
    with pytest.raises(errors.KernelRefused, match="ENOSPC"):
        await kernel.Kernel(tree).remove(ADDRESS)


async def test_the_name_of_a_slot_may_have_blanks(tree):
    folder = tree / "bus/pci/slots/UIO Slot1"
    folder.mkdir(parents=True)
    (folder / "power").write_text("1\n")
    await kernel.Kernel(tree).power_slot("UIO Slot1", on=False)
    assert (folder / "power").read_text().strip() == "0"


async def test_a_slot_that_its_driver_has_switched_off_is_off(tree):
    """pciehp answers ENODEV ("Already disabled") where the port has no power controller; its file says 1 forever."""

    class Disabled(kernel.Kernel):
        async def _write(self, target, path, value, **_):
            raise kernel.refusal(path, value, OSError(errno.ENODEV, "no such device"))

    await Disabled(tree).power_slot("3", on=False)
    with pytest.raises(errors.KernelRefused, match="ENODEV"):
        await Disabled(tree).power_slot("3", on=True)
