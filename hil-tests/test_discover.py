"""What `drawbar discover --watch` tells of a real kernel's hot-plug, by its own uevents."""

import json

import pytest
from lab import chassis, waiting

pytestmark = pytest.mark.asyncio(loop_scope="session")

DEVICE = "/sys/bus/pci/devices/0000:01:00.0"


def parse_events(watch):
    """Return action, device and serial number of each event: the function's present number, or its last."""
    events = [json.loads(line) for line in watch.output.splitlines() if line.endswith("}")]
    return [
        (event["action"], event["device"], (event["function"] or {}).get("serial"))
        for event in events
        if "action" in event
    ]


async def test_a_disk_is_told_of_as_it_comes_and_as_it_goes(lab, guest, drawbar):
    plugs = chassis.Chassis(guest, lab.folder)
    disk = await plugs.disk("disk-w")
    async with guest.process(
        drawbar, "discover", "--watch", "-o", "json", log=lab.logs / "watch.log"
    ) as watch:
        await watch.says("Watching", 120)

        async def heard():
            return parse_events(watch)

        for _ in range(2):
            begun = len(parse_events(watch))
            await plugs.plug(disk, "port-1")
            await waiting.until(
                heard, lambda events, begun=begun: ("add", "ng0n1", disk.serial) in events[begun:]
            )
            await guest.write(f"{DEVICE}/driver/unbind", "0000:01:00.0\n")
            await guest.write(f"{DEVICE}/remove", "1\n")
            await guest.write("/sys/bus/pci/slots/1/power", "0\n")
            await plugs.out(disk)
            await waiting.until(
                heard,
                lambda events, begun=begun: (
                    ("remove", "0000:01:00.0") in [event[:2] for event in events[begun:]]
                ),
            )
        assert {serial for _, _, serial in parse_events(watch)} <= {disk.serial, None}
