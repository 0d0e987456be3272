"""Devices that an administrator's hook makes ready, before their pod is bound: KEP-5007's first story."""

import asyncio
import hashlib

from drawbar.driver.kube import kinds

HEAD = {"apiVersion": "drawbar.dev/v1alpha1", "kind": "DeviceParameters"}
BITSTREAM = b"the bits of an FPGA"
LOADS = """#!/bin/sh
# Loads a bitstream once it is let: here into a file of the device's name.
folder=$(dirname "$0")/..
while [ ! -e "$folder/go" ]; do sleep 0.05; done
cp "$DRAWBAR_BITSTREAM" "$folder/loaded-$DRAWBAR_DEVICE"
echo "$DRAWBAR_PCI_ADDRESS $DRAWBAR_CLASS" >> "$folder/runs"
"""
BLANKS = """#!/bin/sh
folder=$(dirname "$0")/..
while [ ! -e "$folder/blank-now" ]; do sleep 0.05; done
echo "$DRAWBAR_DEVICE" >> "$folder/blanked"
"""
DRAINS = """#!/bin/sh
folder=$(dirname "$0")/..
while [ ! -e "$folder/drain-now" ]; do sleep 0.05; done
for holder in "$DRAWBAR_SYSFS"/class/block/nvme*/holders/dm-3; do rmdir "$holder"; done
echo "$DRAWBAR_DEVICE" >> "$folder/drained"
"""
HANGS = "#!/bin/sh\necho begun; sleep 600\n"
FAILS = "#!/bin/sh\necho 'no such port on the card' >&2\nexit 3\n"


def config(**report_text):
    return [{"opaque": {"driver": "drawbar.dev", "parameters": HEAD | report_text}}]


async def make_class(cluster, name, **report_text):
    selector = {"cel": {"expression": 'device.driver == "drawbar.dev"'}}
    await cluster.create(
        kinds.DEVICE_CLASS, name, spec={"selectors": [selector], "config": config(**report_text)}
    )


async def make_pod(cluster, name, device_class, **report_text):
    request = {"name": "card", "exactly": {"deviceClassName": device_class}}
    await cluster.pod_from_template(
        name, {"requests": [request], "config": config(**report_text) if report_text else []}
    )


def put(cluster):
    """Put hooks and the bitstream where the nodes look for them; the folder of real components has files of the last test."""
    for name in ("go", "blank-now", "drain-now", "runs", "blanked", "drained"):
        (cluster.path / name).unlink(missing_ok=True)
    settings = cluster.hooks()
    for folder in (settings.hooks, settings.bitstreams):
        folder.mkdir(mode=0o755, exist_ok=True)
    for name, text in (
        ("loads", LOADS),
        ("fails", FAILS),
        ("blanks", BLANKS),
        ("drains", DRAINS),
        ("hangs", HANGS),
    ):
        (settings.hooks / name).write_text(text)
        (settings.hooks / name).chmod(0o755)
    (settings.bitstreams / "packets.bit").write_bytes(BITSTREAM)


async def test_a_card_is_programmed_by_its_hook_before_its_pod_is_bound(flow_lab):
    async with flow_lab("1.36") as cluster:
        await asyncio.to_thread(put, cluster)
        await make_class(cluster, "packets", initialise={"hook": "loads", "timeoutSeconds": 60})
        digest = hashlib.sha256(BITSTREAM).hexdigest()
        await make_pod(cluster, "p", "packets", fpga={"bitstream": "packets.bit", "sha256": digest})
        await cluster.wait_for_event("Initialising", "hook loads with bitstream packets.bit makes")
        pod = await cluster.api.read(kinds.POD, "p", namespace="default", into=dict)
        assert "nodeName" not in pod["spec"], "it waits for the hook"
        (cluster.path / "go").touch()
        await cluster.wait_until_running("p")
        (loaded,) = cluster.path.glob("loaded-*")
        assert loaded.read_bytes() == BITSTREAM
        runs = (cluster.path / "runs").read_text().splitlines()
        assert len(runs) == 1, "once for a claim"


async def test_a_hook_that_fails_or_a_wrong_bitstream_ends_in_its_words(flow_lab):
    async with flow_lab("1.36") as cluster:
        await asyncio.to_thread(put, cluster)
        await make_class(cluster, "broken", initialise={"hook": "fails"})
        await make_pod(cluster, "b", "broken")
        await cluster.wait_for_event(
            "HookFailed", "ended with status 3; it wrote last: no such port on the card"
        )
        for device in await cluster.attachments():
            assert not await cluster.taints(device), (
                "a claim takes no device from others by what it has loaded"
            )
        await cluster.api.delete(kinds.POD, "b", namespace="default")
        await cluster.wait_until_gone("b")
        await make_class(cluster, "packets", initialise={"hook": "loads"})
        await make_pod(cluster, "w", "packets", fpga={"bitstream": "packets.bit", "sha256": "0" * 64})
        await cluster.wait_for_event("HookFailed", "and 000")
        await cluster.api.delete(kinds.POD, "w", namespace="default")
        await cluster.wait_until_gone("w")


async def read_release_report(cluster, device):
    """Return why its node does not let go of the device, as reason and message; None before that is reported."""
    attachment = (await cluster.attachments()).get(device, {})
    report_text = attachment.get("status", {}).get("conditions", ())
    reports = [(entry["reason"], entry["message"]) for entry in report_text if entry["type"] == "Released"]
    return reports[0] if reports else None


async def test_a_hook_that_hangs_or_may_take_too_long_is_reported(flow_lab):
    async with flow_lab("1.36") as cluster:
        await asyncio.to_thread(put, cluster)
        await make_class(cluster, "hanging", initialise={"hook": "hangs", "timeoutSeconds": 1})
        await make_pod(cluster, "h", "hanging")
        await cluster.wait_for_event("HookFailed", "was killed after 1 s; it wrote last: begun")
        await cluster.api.delete(kinds.POD, "h", namespace="default")
        await cluster.wait_until_gone("h")
        await make_class(cluster, "slow", initialise={"hook": "fails", "timeoutSeconds": 1800})
        await make_pod(cluster, "s", "slow")
        await cluster.wait_for_event(
            "HookTooLong", "the hook fails may take 1800 s, and the scheduler waits 600 s"
        )
        await cluster.api.delete(kinds.POD, "s", namespace="default")
        await cluster.wait_until_gone("s")


async def test_a_card_is_cleaned_by_its_hook_before_another_pod_gets_it(flow_lab):
    async with flow_lab("1.36", devices=1) as cluster:
        await asyncio.to_thread(put, cluster)
        await make_class(cluster, "blanked", cleanUp={"hook": "blanks", "timeoutSeconds": 60})
        await make_pod(cluster, "first", "blanked")
        _, (device,) = await cluster.wait_until_running("first")
        await cluster.api.delete(kinds.POD, "first", namespace="default")
        await cluster.wait_for_taints(device, "cleaning=:NoSchedule")
        reason, message = await read_release_report(cluster, device)
        assert (reason, message.partition(" cleans ")[0]) == ("Cleaning", "hook blanks")
        await make_pod(cluster, "second", "blanked")
        (cluster.path / "blank-now").touch()
        await cluster.wait_until_running("second")
        assert (cluster.path / "blanked").read_text() == f"{device}\n"
        await cluster.api.delete(kinds.POD, "second", namespace="default")
        await cluster.is_free(device)


async def test_a_device_that_the_host_still_uses_is_drained_by_its_hook(flow_lab):
    async with flow_lab("1.36", devices=1) as cluster:
        await asyncio.to_thread(put, cluster)
        await make_class(cluster, "drained", drain={"hook": "drains", "timeoutSeconds": 60})
        await make_pod(cluster, "p", "drained")
        node, (device,) = await cluster.wait_until_running("p")
        disks = cluster.trees[node].root.glob("class/block/nvme*")
        await asyncio.to_thread(lambda: [(disk / "holders/dm-3").mkdir(parents=True) for disk in disks])
        await cluster.api.delete(kinds.POD, "p", namespace="default")
        await cluster.wait_for_event("InUse", "; hook drains is draining the device")
        reason, message = await read_release_report(cluster, device)
        assert (reason, message.partition(", ")[0]) == ("InUse", "part of dm-3")
        (cluster.path / "drain-now").touch()
        await cluster.is_free(device)
        assert (cluster.path / "drained").read_text() == f"{device}\n"


async def test_a_card_whose_clean_up_fails_stays_with_its_words(flow_lab):
    async with flow_lab("1.36", devices=1) as cluster:
        await asyncio.to_thread(put, cluster)
        await make_class(cluster, "dirty", cleanUp={"hook": "fails"})
        await make_pod(cluster, "d", "dirty")
        _, (device,) = await cluster.wait_until_running("d")
        await cluster.api.delete(kinds.POD, "d", namespace="default")
        await cluster.wait_for_taints(device, "not-cleaned=:NoSchedule")
        reason, message = await read_release_report(cluster, device)
        assert reason == "NotCleaned"
        assert message.endswith("ended with status 3; it wrote last: no such port on the card")
        name = (await cluster.attachments())[device]["metadata"]["name"]
        await cluster.change(kinds.ATTACHMENT, name, spec={"clean": "none"})
        await cluster.is_free(device)


async def test_a_device_whose_firmware_is_too_old_for_its_class_is_not_handed_to_a_pod(flow_lab):
    async with flow_lab("1.36") as cluster:
        await make_class(cluster, "newer", minimumVersions={"firmware": "999"})
        await make_pod(cluster, "n", "newer")
        await cluster.wait_for_event("VersionTooOld", "and at least 999 is asked for")
        await cluster.api.delete(kinds.POD, "n", namespace="default")
        await cluster.wait_until_gone("n")
