"""Keeps the cards of a pretended host as its node's DeviceAttachments have them, and does what is written into its files.

It writes to no API server: what it reads there is what a node daemon reads with the same token.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import assert_never

from drawbar.driver.api import attachments
from drawbar.driver.kube import client, kinds, mirror
from drawbar.mocks import sysfs
from drawbar.mocks.host import cards

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def serving(api: client.Client, node: str, tree: sysfs.SysfsTree, slots: int) -> AsyncIterator[None]:
    """Follow the attachments of a node while the block lasts; once it is entered, what was attached then is there.

    Args:
        api: may list and watch DeviceAttachments.
        node: its name.
        tree: the host's; of this process alone.
        slots: how many it has.
    """
    changed = asyncio.Event()
    own: mirror.Mirror[attachments.DeviceAttachment] = mirror.Mirror(
        api,
        kinds.ATTACHMENT,
        into=attachments.DeviceAttachment,
        changed=lambda _old, _new: changed.set(),
        labels=f"{attachments.NODE_LABEL}={attachments.node_label(node)}",
    )
    host = _Host(own, tree, slots)
    async with tree.reacting(), asyncio.TaskGroup() as tasks:
        following = [tasks.create_task(own.run(), name="attachments")]
        await own.synced.wait()
        changed.clear()
        await host.change()
        following.append(tasks.create_task(host.follow(changed), name="cards"))
        try:
            yield
        finally:
            for task in following:
                task.cancel()


class _Host:
    def __init__(
        self, own: mirror.Mirror[attachments.DeviceAttachment], tree: sysfs.SysfsTree, slots: int
    ) -> None:
        self._own, self._tree, self._slots = own, tree, slots
        self._reported: dict[str, str] = {}
        self._plugged: dict[int, str] = {}

    async def follow(self, changed: asyncio.Event) -> None:
        """Change the cards after each change of the attachments, for ever."""
        while True:
            await changed.wait()
            changed.clear()
            await self.change()

    async def change(self) -> None:
        """Make the cards those of the attachments as they are now."""
        wanted = cards.wanted(self._own, self._slots)
        for name, why in wanted.problems.items():
            if self._reported.get(name) != why:
                log.warning("a device does not appear: %s", why, extra={"attachment": name})
        self._reported = dict(wanted.problems)
        present = await asyncio.to_thread(self._tree.attached)
        for action in cards.changes(wanted, present, self._plugged):
            await asyncio.to_thread(_carry_out, self._tree, action)
        self._plugged = dict(wanted.owners)


def _carry_out(tree: sysfs.SysfsTree, action: cards.Action) -> None:
    match action:
        case cards.Plug(slot=slot, card=card):
            address = tree.attach(slot, card)
            log.info("plugged in", extra={"slot": slot, "address": address, "serial": card.serial})
        case cards.Unplug(slot=slot):
            tree.detach(slot)
            log.info("unplugged", extra={"slot": slot})
        case _:
            assert_never(action)


def tree_at(root: Path, *, slots: int, uevent_socket: Path) -> sysfs.SysfsTree:
    """Return the host's tree: the one that is there after a restart of this process, or a new one.

    Its device files have numbers that no driver of this machine has: they are made in real containers.

    Raises:
        sysfs.ImpossibleWorld: there is something else at the root.
    """
    if root.exists() and any(root.iterdir()):
        return sysfs.SysfsTree.open(root)
    return sysfs.SysfsTree.create(root, slots=slots, uevent_socket=uevent_socket, harmless_numbers=True)
