"""Keeps the cards of a simulated host consistent with its node's DeviceAttachments, and reacts to writes to files.

It writes nothing to the API server, and reads only what the node daemon reads with the same token.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import assert_never

from drawbar.mocks import attachments, sysfs
from drawbar.mocks.host import cards
from drawbar.mocks.kube import client, kinds, mirror

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def serving(api: client.Client, node: str, tree: sysfs.SysfsTree, slots: int) -> AsyncIterator[None]:
    """Follow the attachments of a node while the block lasts.

    The block is entered when the attached devices are plugged in.

    Args:
        api: a client that may list and watch DeviceAttachments.
        node: the node's name.
        tree: the host's tree; only this process uses it.
        slots: the number of the tree's slots.
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
        """Update the cards after each change of the attachments, until cancelled."""
        while True:
            await changed.wait()
            changed.clear()
            await self.change()

    async def change(self) -> None:
        """Update the cards to match the current attachments."""
        wanted = cards.find_wanted_cards(self._own, self._slots)
        for name, why in wanted.problems.items():
            if self._reported.get(name) != why:
                log.warning("the device of %s does not appear: %s", name, why)
        self._reported = dict(wanted.problems)
        present = await asyncio.to_thread(self._tree.list_attached_cards)
        for action in cards.changes(wanted, present, self._plugged):
            await asyncio.to_thread(_carry_out, self._tree, action)
        self._plugged = dict(wanted.owners)


def _carry_out(tree: sysfs.SysfsTree, action: cards.Action) -> None:
    match action:
        case cards.Plug(slot=slot, card=card):
            address = tree.attach(slot, card)
            log.info("plugged %s into slot %d: %s", card.serial, slot, address)
        case cards.Unplug(slot=slot):
            tree.detach(slot)
            log.info("unplugged slot %d", slot)
        case _:
            assert_never(action)


def tree_at(root: Path, *, slots: int, uevent_socket: Path) -> sysfs.SysfsTree:
    """Return the host's tree: the existing one after a restart of this process, or a new one.

    Its device files have numbers that no driver of this machine uses, as they are created in real containers.

    Raises:
        sysfs.ImpossibleWorld: the root has other contents.
    """
    if root.exists() and any(root.iterdir()):
        return sysfs.SysfsTree.open(root)
    return sysfs.SysfsTree.create(root, slots=slots, uevent_socket=uevent_socket, harmless_numbers=True)
