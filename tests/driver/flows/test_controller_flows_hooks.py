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
FAILS = "#!/bin/sh\necho 'no such port on the card' >&2\nexit 3\n"


def config(**said):
    return [{"opaque": {"driver": "drawbar.dev", "parameters": HEAD | said}}]


async def make_class(cluster, name, **said):
    selector = {"cel": {"expression": 'device.driver == "drawbar.dev"'}}
    await cluster.create(kinds.DEVICE_CLASS, name, spec={"selectors": [selector], "config": config(**said)})


async def make_pod(cluster, name, device_class, **said):
    request = {"name": "card", "exactly": {"deviceClassName": device_class}}
    await cluster.pod_from_template(name, {"requests": [request], "config": config(**said) if said else []})


def put(cluster):
    """Put hooks and the bitstream where the nodes look for them."""
    settings = cluster.hooks()
    for folder in (settings.hooks, settings.bitstreams):
        folder.mkdir(mode=0o755, exist_ok=True)
    for name, text in (("loads", LOADS), ("fails", FAILS)):
        (settings.hooks / name).write_text(text)
        (settings.hooks / name).chmod(0o755)
    (settings.bitstreams / "packets.bit").write_bytes(BITSTREAM)


async def test_a_card_is_programmed_by_its_hook_before_its_pod_is_bound(flow_lab):
    async with flow_lab("1.36") as cluster:
        await asyncio.to_thread(put, cluster)
        await make_class(cluster, "packets", initialise={"hook": "loads", "timeoutSeconds": 60})
        digest = hashlib.sha256(BITSTREAM).hexdigest()
        await make_pod(cluster, "p", "packets", fpga={"bitstream": "packets.bit", "sha256": digest})
        await cluster.noted("Initialising", "hook loads with bitstream packets.bit makes")
        pod = await cluster.api.read(kinds.POD, "p", namespace="default", into=dict)
        assert "nodeName" not in pod["spec"], "it waits for the hook"
        (cluster.path / "go").touch()
        await cluster.running("p")
        (loaded,) = cluster.path.glob("loaded-*")
        assert loaded.read_bytes() == BITSTREAM
        runs = (cluster.path / "runs").read_text().splitlines()
        assert len(runs) == 1, "once for a claim"


async def test_a_hook_that_fails_or_a_wrong_bitstream_ends_in_its_words(flow_lab):
    async with flow_lab("1.36") as cluster:
        await asyncio.to_thread(put, cluster)
        await make_class(cluster, "broken", initialise={"hook": "fails"})
        await make_pod(cluster, "b", "broken")
        await cluster.noted("HookFailed", "ended with status 3; it wrote last: no such port on the card")
        for device in await cluster.attachments():
            assert not await cluster.taints(device), (
                "a claim takes no device from others by what it has loaded"
            )
        await cluster.api.delete(kinds.POD, "b", namespace="default")
        await cluster.gone("b")
        await make_class(cluster, "packets", initialise={"hook": "loads"})
        await make_pod(cluster, "w", "packets", fpga={"bitstream": "packets.bit", "sha256": "0" * 64})
        await cluster.noted("HookFailed", "and 000")
        await cluster.api.delete(kinds.POD, "w", namespace="default")
        await cluster.gone("w")


async def test_a_device_whose_firmware_is_too_old_for_its_class_is_not_handed_to_a_pod(flow_lab):
    async with flow_lab("1.36") as cluster:
        await make_class(cluster, "newer", minimumVersions={"firmware": "999"})
        await make_pod(cluster, "n", "newer")
        await cluster.noted("VersionTooOld", "and at least 999 is asked for")
        await cluster.api.delete(kinds.POD, "n", namespace="default")
        await cluster.gone("n")
