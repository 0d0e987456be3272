"""Carries out what `plan` decided for one CXL memory device.

Not done: interleaving, a part of a device, persistent memory, and devices whose memory firmware mapped without a region.
"""

from dataclasses import dataclass
from typing import assert_never

from drawbar.driver.node import kernel
from drawbar.driver.node.classes import generic, openers, operations, users
from drawbar.driver.node.classes.cxl_memory import observation, plan, standing
from drawbar.driver.node.inventory import model

STEPS_MAX = 24
"""From nothing to online memory takes about ten; a device that takes more goes round in circles."""
BLOCKS_AT_ONCE = 64
"""Between two looks; taking a block offline moves up to 2 GiB of pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CxlMemory(generic.Generic):
    """See `operations.DeviceOperations`."""

    needs_driver: bool = True
    needs_files: bool = True

    async def initialise(self, kernel: kernel.Kernel, card: model.Card) -> str | None:
        """Binds the driver, makes a region of all the memory, and brings it online as movable."""
        lack = await generic.Generic.initialise(self, kernel, card)
        if lack is not None:
            return lack
        host = operations.Host.of(kernel.sysfs)
        before: plan.Action | None = None
        for _ in range(STEPS_MAX):
            step = plan.towards_ready(await _standing(kernel, host, card))
            match step:
                case None:
                    return None
                case plan.Missing(why=why):
                    return why
                case _ if step == before:
                    return "the kernel has not yet done what it was asked"
            await _do(kernel, step)
            before = step
        return "it takes more steps than it should; look at the kernel's log"

    def users(self, host: operations.Host, card: model.Card) -> tuple[users.User, ...]:
        """Open files of the device and of its dax devices, and what stands on it that is not ours to take away."""
        kept = plan.obstacles(observation.read(host, card))
        mapped = openers.find(host.proc, openers.of_nodes(observation.nodes(host, card)))
        return (*(users.User(text=text) for text in kept), *mapped, *generic.Generic.users(self, host, card))

    def unrest(self, host: operations.Host, card: model.Card) -> str | None:
        """Memory that is online, and regions; other words for every step, so that one sees that it goes on."""
        found = observation.read(host, card)
        match plan.towards_rest(found):
            case None:
                return None
            case plan.SetMemory(blocks=blocks):
                return f"{len(blocks)} memory blocks are online"
            case plan.SetRegion(region=name):
                return f"{name} is committed"
            case plan.DeleteRegion(region=name):
                return f"{name} is there"

    async def quiesce(self, kernel: kernel.Kernel, host: operations.Host, card: model.Card) -> None:
        """Takes memory offline, then its region away."""
        step = plan.towards_rest(await _standing(kernel, host, card))
        if step is not None:
            await _do(kernel, step)


async def _standing(kernel: kernel.Kernel, host: operations.Host, card: model.Card) -> standing.Standing:
    return await kernel.run(
        f"the memory of {card.address}",
        f"what stands on {card.address}",
        lambda: observation.read(host, card),
    )


async def _do(kernel: kernel.Kernel, step: plan.Action) -> None:
    match step:
        case plan.SetDecoder(decoder=decoder, attribute=attribute, value=value):
            await kernel.set_decoder(decoder, attribute, value)
        case plan.CreateRegion(window=window):
            await kernel.create_region(window)
        case plan.SetRegion(region=region, attribute=part, value=value):
            await kernel.set_region(region, part, value)
        case plan.BindRegion(region=region):
            await kernel.bind_region(region)
        case plan.DeleteRegion(window=window, region=region):
            await kernel.delete_region(window, region)
        case plan.SetMemory(blocks=blocks, state=state):
            for block in blocks[:BLOCKS_AT_ONCE]:
                await kernel.set_memory(block, state)
        case _:
            assert_never(step)
