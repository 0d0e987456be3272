"""Takes the pictures of docs/ui.md: ``python tests/driver/cli/ui/pictures.py docs`` writes ui-light.png and ui-dark.png there."""

import asyncio
import datetime
import sys
from pathlib import Path

from drawbar.driver.api import meta
from drawbar.driver.cli.status import tree
from drawbar.driver.cli.ui import device_rows, following, model, server
from drawbar.mocks.testing import browser

STATES = {
    1: ("Ready", ""),
    2: ("Ready", ""),
    4: ("Attached", "the node, to see the device"),
    5: ("Pending", "the fabric manager, to attach the device"),
    7: ("Failed", "PortDown: port p2 of host-3 has no link"),
    9: ("Releasing", "the node, to let go of the device"),
}


def page(now):
    """Return a rack with devices in many states."""

    def ago(seconds):
        return meta.timestamp(now - datetime.timedelta(seconds=seconds))

    listed = []
    for number in range(40):
        enclosure = f"chassis-{number // 20 + 1}"
        state, waits_for = STATES.get(number, ("Free", ""))
        is_used = state != "Free"
        claim = tree.Claim(
            namespace="team-a",
            name=f"train-{number}",
            state="Reserved",
            since=ago(900),
            node=f"worker-{number % 4 + 1}",
            pods=(f"train-{number}-0",),
            waits_for="",
        )
        taint = tree.Taint(key="drawbar.dev/maintenance", value="", effect="NoSchedule")
        device = tree.Device(
            pool=f"rack-1/{enclosure}",
            name=f"{'gpu' if number < 12 else 'nvme'}-{number}",
            device_class="gpu" if number < 12 else "nvme",
            model="H200" if number < 12 else "PM1743",
            state=state,
            since=ago(60 * number + 3) if is_used else "",
            waits_for=waits_for,
            node=claim.node if is_used else "",
            host=f"host-{number % 4 + 1}" if is_used else "",
            port=f"p{number % 2 + 1}" if is_used else "",
            slot=str(number) if state == "Ready" else "",
            health="" if state != "Ready" else "Unhealthy" if number == 2 else "Healthy",
            health_message="link-narrow x4-of-x16" if number == 2 else "",
            taints=(taint,) if number in (2, 11) else (),
            claims=(claim,) if is_used else (),
            published=True,
        )
        listed.append(device_rows.Row(fabric="rack-1", enclosure=enclosure, device=device))
    waiting = tree.Claim(
        namespace="team-b",
        name="render",
        state="Pending",
        since=ago(42),
        node="",
        pods=(),
        waits_for="the scheduler, to allocate it",
    )
    events = [
        (3, "Normal", "Attaching", "gpu-5", "asks the fabric manager to attach gpu-5 to host-2"),
        (12, "Normal", "Attached", "gpu-4", "gpu-4 is connected to port p1 of host-1"),
        (64, "Warning", "AttachFailed", "gpu-7", "PortDown: port p2 of host-3 has no link"),
        (130, "Warning", "LinkNarrow", "gpu-2", "the link has 4 of 16 lanes"),
    ]
    fabrics = [
        ("rack-1", "Connected", 86400, ""),
        ("rack-2", "Unreachable", 400, "the fabric manager has not answered for 400 s"),
    ]
    return model.Page(
        rows={row.key: row for row in listed},
        fabrics=tuple(
            model.Fabric(name=name, state=state, since=ago(seconds), message=message)
            for name, state, seconds, message in fabrics
        ),
        claims=(waiting,),
        events=tuple(
            model.Event(
                at=ago(seconds),
                type=type_,
                reason=reason,
                kind="DeviceAttachment",
                namespace="",
                name=f"rack-1.{name}",
                note=note,
            )
            for seconds, type_, reason, name, note in events
        ),
    )


async def _take(folder: Path):
    latest = following.Latest()
    latest.publish(page(datetime.datetime.now(datetime.UTC)))
    with server.listening() as bound:
        async with server.serving(latest, bound) as url:
            for name, is_dark in (("light", False), ("dark", True)):
                async with browser.opened(url, is_dark=is_dark, width=1500, height=720) as tab:
                    await tab.until("document.querySelector('#rows').textContent.includes('gpu-7')")
                    (folder / f"ui-{name}.png").write_bytes(await tab.picture())


if __name__ == "__main__":
    asyncio.run(_take(Path(sys.argv[1])))
