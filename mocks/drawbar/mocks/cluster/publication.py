"""Waits until the controller has a fabric, and its whole pool where devices are published."""

import asyncio

from drawbar.driver.api import fabrics, meta, slices
from drawbar.driver.kube import client, kinds, mirror


async def complete(api: client.Client, fabric: str, devices: int, *, published: bool = True) -> None:
    """Returns when the Fabric is Connected and its devices are there; the caller sets the deadline.

    Args:
        api: reads Fabrics and ResourceSlices.
        fabric: its name.
        devices: how many there are to be.
        published: they are to be in ResourceSlices. In clusters with classic allocation nothing is published, and the
            Fabric's own count has to do.
    """
    changed = asyncio.Event()

    def notice(_old: object, _new: object) -> None:
        changed.set()

    known = mirror.Mirror(api, kinds.FABRIC, into=fabrics.Fabric, changed=notice)
    offers = mirror.Mirror(api, kinds.SLICE, into=slices.ResourceSlice, changed=notice)

    def whole() -> bool:
        found = known.get(fabric)
        seen = _offered(offers) if published else found.status.devices if found is not None else 0
        return _connected(found) and seen >= devices

    async with asyncio.TaskGroup() as tasks:
        watches = [tasks.create_task(known.run())]
        if published:
            watches.append(tasks.create_task(offers.run()))
        while not whole():
            await changed.wait()
            changed.clear()
        for watch in watches:
            watch.cancel()


def _connected(fabric: fabrics.Fabric | None) -> bool:
    return fabric is not None and meta.is_true(fabric.status.conditions, fabrics.CONNECTED)


def _offered(offers: mirror.Mirror[slices.ResourceSlice]) -> int:
    return sum(len(one.spec.devices) for one in offers)
