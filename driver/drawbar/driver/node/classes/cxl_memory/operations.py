"""The class of CXL memory, and the execution of the decisions of `region_steps` and `interleaving`.

Not supported: a part of a device, persistent memory, and devices mapped by firmware without a region.
"""

import functools
import os
import time
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import assert_never

import msgspec

from drawbar.cdi import spec
from drawbar.driver.api import parameters
from drawbar.driver.node import errors, kernel
from drawbar.driver.node.classes import generic, users
from drawbar.driver.node.classes.cxl_memory import interleaving, reading, region_steps
from drawbar.driver.node.classes.users import Host
from drawbar.driver.node.inventory import files, model, pci
from drawbar.fabric.classes import DeviceClass


def dax_nodes(
    host: Host, card: model.Card, driver: str | None = None, companions: Collection[model.Card] = ()
) -> tuple[model.DeviceNode, ...]:
    """Return the device files of the regions' dax devices, of one driver or of all; in sysfs they are not below the card.

    In a composite, the dax device of a region over several members belongs to its first member.
    """
    root = os.fspath(host.sysfs)
    layout = reading.read_layout(host, card, companions)
    names = [
        dax.name
        for region in layout.regions
        if not {*region.targets[:1]} & {*layout.companions}
        for dax in region.dax
        if driver in (None, dax.driver)
    ]
    device_nodes = (pci.device_node(f"{root}/bus/dax/devices/{name}") for name in names)
    return tuple(node for node in device_nodes if node is not None)


_DRIVERS: dict[str | None, model.DaxDriver] = {
    None: region_steps.DEVICE_DAX,
    parameters.DEVDAX: region_steps.DEVICE_DAX,
    parameters.SYSTEM_RAM: region_steps.KMEM,
}
STEPS_MAX = 24
"""About twice the steps from an unused device to online memory; a device that needs more is in a loop."""
STEPS_PER_MEMBER = 8
"""The further steps for each member of a composite: to remove its own region, set its decoder, and add it to the new region."""
BLOCKS_AT_ONCE = 64
"""The memory blocks of one step; to take one block offline, the kernel may move 2 GiB of pages."""


class CxlMemory(generic.Generic, frozen=True, kw_only=True):
    """See `generic.Generic`.

    Attributes:
        companions: the visible other members of the device's composite; a region over members only belongs to them.
    """

    device_class: DeviceClass = DeviceClass.CXL_MEMORY
    class_codes: tuple[str, ...] = ("0502",)  # CXL 2.0, 8.1.12.1
    needs_driver: bool = True
    needs_files: bool = True
    asks_the_driver: bool = True
    companions: tuple[model.Card, ...] = ()

    def for_composite(self, companions: Collection[model.Card]) -> generic.Generic:
        """Return the class with these companions."""
        return msgspec.structs.replace(self, companions=tuple(companions))

    async def initialise(
        self,
        kernel: kernel.Kernel,
        card: model.Card,
        device_parameters: parameters.DeviceParameters = parameters.NOTHING,
    ) -> str | None:
        """Bind the driver, make one region of all the memory, and then a dax device or movable system memory.

        Return the next missing requirement, or None if the memory is ready. With `memory.interleave` the region spans all
        members, so all of them must be on this node.

        Raises:
            errors.CannotInterleave: the members cannot form one region.
        """
        missing = await generic.Generic.initialise(self, kernel, card)
        if missing is not None:
            return missing
        host, driver = (
            Host.from_sysfs(kernel.sysfs),
            _DRIVERS.get(device_parameters.memory.mode, region_steps.DEVICE_DAX),
        )
        # Every member decides on the same region, in the same order.
        cards = sorted((card, *self.companions), key=lambda member: member.address)

        async def decide() -> _Decision:
            if device_parameters.memory.interleave:
                ensemble = await _ensemble(kernel, host, cards)
                step = interleaving.towards_interleaved(
                    ensemble, driver, device_parameters.memory.granularity
                )
                # One member represents all: they have the same memory blocks.
                return ensemble.members[0], step
            layout = await _read_layout(kernel, host, card)
            return layout, region_steps.towards_ready(layout, driver)

        # An empty region has no owner yet: two devices arriving at once would both fill the same one.
        async with kernel.changing_region:
            return await self._bring_up(kernel, decide)

    async def _bring_up(
        self, kernel: kernel.Kernel, decide: Callable[[], Awaitable["_Decision"]]
    ) -> str | None:
        before: region_steps.Action | None = None
        for _ in range(STEPS_MAX + STEPS_PER_MEMBER * len(self.companions)):
            layout, step = await decide()
            match step:
                case None:
                    return None
                case region_steps.Missing(why=why):
                    return why
                case interleaving.CannotInterleave(why=why):
                    raise errors.CannotInterleave(why)
                case _ if step == before:
                    return region_steps.find_misplaced(layout) or "the kernel has not finished the request"
            await _execute(kernel, layout, step)
            before = step
        return "it takes more steps than it should; look at the kernel's log"

    def current_users(self, host: Host, card: model.Card) -> tuple[str, ...]:
        """Return the processes with the device or its dax devices open, and the regions that Drawbar must not remove."""
        kept = region_steps.obstacles(reading.read_layout(host, card, self.companions))
        mapped = users.find_openers(host.proc, users.index_nodes(dax_nodes(host, card)))
        return (*kept, *mapped, *generic.Generic.current_users(self, host, card))

    def pending_quiesce_step(self, host: Host, card: model.Card) -> str | None:
        """Return the next online memory or region to remove, as a clause, or None; each step has another text, to show progress."""
        layout = reading.read_layout(host, card, self.companions)
        match region_steps.towards_rest(layout):
            case None:
                return None
            case region_steps.SetMemory(blocks=blocks):
                return region_steps.find_misplaced(layout) or f"{len(blocks)} memory blocks are online"
            case region_steps.UnbindDax(dax=name, driver=driver):
                return f"{name} is bound to {driver}"
            case region_steps.SetRegion(region=name):
                return f"{name} is committed"
            case region_steps.DeleteRegion(region=name):
                return f"{name} is there"

    async def quiesce(self, kernel: kernel.Kernel, host: Host, card: model.Card) -> None:
        """Take the memory offline, then unbind its dax device and delete its region, one step for each call."""
        if not self.companions:
            await self._quiesce(kernel, host, card)
            return
        # The companions remove the same region, and each step must match the state read just before it.
        async with kernel.changing_region:
            await self._quiesce(kernel, host, card)

    async def _quiesce(self, kernel: kernel.Kernel, host: Host, card: model.Card) -> None:
        layout = await _read_layout(kernel, host, card, self.companions)
        step = region_steps.towards_rest(layout)
        if step is not None:
            await _execute(kernel, layout, step)

    def eraser(self, host: Host, card: model.Card) -> generic.Eraser | None:
        """Return the sanitize of the volatile memory, or None if kernel or device has none or the device has persistent memory."""
        memdev = next(iter(card.memdevs), None)
        if memdev is None:
            return functools.partial(_refuse_without_memory, card.address)
        folder = Path(host.sysfs, "bus/cxl/devices", memdev.name, "security")
        is_volatile = bool(memdev.ram_bytes) and not memdev.pmem_bytes
        if not is_volatile or not os.path.lexists(folder / "sanitize"):
            return None
        return functools.partial(_sanitize, folder, memdev.name)

    def edits(self, card: model.Card, host: Host) -> spec.ContainerEdits:
        """Return only the dax device's file, if there is one: with the memory device's own file a container could erase it.

        In an interleaved composite one member supplies the file, and the others none.
        """
        container_edits = generic.Generic.edits(self, card, host)
        if not dax_nodes(host, card, region_steps.DEVICE_DAX):
            return container_edits
        nodes = dax_nodes(host, card, region_steps.DEVICE_DAX, self.companions)
        return msgspec.structs.replace(container_edits, device_nodes=tuple(map(generic.describe_node, nodes)))


SANITIZE_SECONDS = 3600.0
"""The limit for a sanitize by the device's controller; the CXL specification sets none for a mailbox command."""
SANITIZE_LOOK_SECONDS = 0.5


def _refuse_without_memory(address: str, report: generic.Report) -> None:
    del report
    raise errors.NotCleaned(
        f"{address} is not erased, so no other user gets it: its driver shows no memory device; look at the kernel's log"
    )


def _sanitize(folder: Path, name: str, report: generic.Report) -> None:
    """Sanitize a memory device without regions (Documentation/ABI/testing/sysfs-bus-cxl, `security/`)."""
    report(f"sanitizing {name}")
    try:
        kernel.write(folder / "sanitize", "1")
    except errors.KernelRefused as refused:
        raise errors.NotCleaned(f"{name} is not erased, so no other user gets it: {refused}") from refused
    ends = time.monotonic() + SANITIZE_SECONDS
    while files.text(f"{folder}/state") == "sanitize":
        if time.monotonic() > ends:
            raise errors.NotCleaned(
                f"{name} is not erased, so no other user gets it: its sanitize did not end within an hour"
            )
        time.sleep(SANITIZE_LOOK_SECONDS)


_Decision = tuple[
    region_steps.Layout, region_steps.Action | region_steps.Missing | interleaving.CannotInterleave | None
]


async def _read_layout(
    kernel: kernel.Kernel, host: Host, card: model.Card, companions: Collection[model.Card] = ()
) -> region_steps.Layout:
    among = " among others" if companions else ""
    return await kernel.run(
        f"the memory of {card.address}",
        f"to show the memory of {card.address}{among}",
        lambda: reading.read_layout(host, card, companions),
    )


async def _ensemble(
    kernel: kernel.Kernel, host: Host, cards: Collection[model.Card]
) -> interleaving.Ensemble:
    addresses = ", ".join(card.address for card in cards)
    return await kernel.run(
        f"the memory of {addresses}",
        f"to show the memory of {addresses}",
        lambda: reading.read_ensemble(host, cards),
    )


async def _execute(kernel: kernel.Kernel, layout: region_steps.Layout, step: region_steps.Action) -> None:
    match step:
        case region_steps.SetDecoder(decoder=decoder, attribute=attribute, value=value):
            await kernel.set_decoder(decoder, attribute, value)
        case region_steps.CreateRegion(window=window):
            await kernel.create_region(window)
        case region_steps.SetRegion(region=region, attribute=part, value=value):
            await kernel.set_region(region, part, value)
        case region_steps.SetTarget(region=region, position=position, decoder=decoder):
            await kernel.set_target(region, position, decoder)
        case region_steps.BindRegion(region=region):
            await kernel.bind_region(region)
        case region_steps.BindDax(dax=dax, driver=driver):
            await kernel.bind_dax(dax, driver)
        case region_steps.UnbindDax(dax=dax, driver=bound):
            await kernel.unbind_dax(dax, bound)
        case region_steps.DeleteRegion(window=window, region=region):
            await kernel.delete_region(window, region)
        case region_steps.SetMemory(blocks=blocks, state=state):
            await _set_memory(kernel, layout, blocks[:BLOCKS_AT_ONCE], state)
        case _:
            assert_never(step)


async def _set_memory(
    kernel: kernel.Kernel,
    layout: region_steps.Layout,
    blocks: tuple[str, ...],
    state: region_steps.MemoryState,
) -> None:
    """Set the blocks' state.

    If memory cannot go offline because of its zone, the error names the blocks and the remedy.
    """
    try:
        for block in blocks:
            await kernel.set_memory(block, state)
    except errors.KernelRefused as refused:
        why = region_steps.find_misplaced(layout)
        if why is None:
            raise
        if isinstance(refused, errors.KernelSilent):
            raise errors.KernelSilent(f"to set memory {state}: {why}", seconds=refused.seconds) from refused
        raise errors.KernelRefused(
            f"{why} ({refused})", path=refused.path, number=refused.number
        ) from refused
