"""Waits until the controller has a fabric and its whole pool is published."""

import asyncio

from drawbar.driver.api import fabrics, meta, slices
from drawbar.driver.kube import client, kinds, reflector


async def complete(api: client.Client, fabric: str, devices: int) -> None:
    """Returns when the Fabric is Connected and so many devices are in ResourceSlices; the caller sets the deadline."""
    changed = asyncio.Event()

    def notice(_old: object, _new: object) -> None:
        changed.set()

    known = reflector.Reflector(api, kinds.FABRIC, into=fabrics.Fabric, changed=notice)
    published = reflector.Reflector(api, kinds.SLICE, into=slices.ResourceSlice, changed=notice)
    async with asyncio.TaskGroup() as tasks:
        watches = [tasks.create_task(watch.run()) for watch in (known, published)]
        while not (_connected(known.get(fabric)) and _devices(published) >= devices):
            await changed.wait()
            changed.clear()
        for watch in watches:
            watch.cancel()


def _connected(fabric: fabrics.Fabric | None) -> bool:
    return fabric is not None and meta.is_true(fabric.status.conditions, fabrics.CONNECTED)


def _devices(published: reflector.Reflector[slices.ResourceSlice]) -> int:
    return sum(len(one.spec.devices) for one in published)
