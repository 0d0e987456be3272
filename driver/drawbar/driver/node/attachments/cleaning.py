"""Takes away what the last claim left on a device that stays attached, before another gets it.

At least a reset of each function, by the best method that it has (FLR where it can). What stands on the device, such as
memory that is online, is taken down by its class first; initialisation builds it up again.
"""

import asyncio

from drawbar.driver.node import classes, errors, kernel
from drawbar.driver.node.classes import users
from drawbar.driver.node.inventory import model
from drawbar.driver.node.inventory.model import FunctionClass

STEPS_MAX = 64
"""A device that takes more to come to rest is looked at again later."""


async def clean(kernel: kernel.Kernel, host: classes.Host, card: model.Card, device_class: str) -> str:
    """Cleans it as far as can be done at once; idempotent.

    Returns:
        Why a trace of the last use may be left, in a clause; empty when none is.
    """
    operations = classes.of(device_class)
    found = await asyncio.to_thread(operations.users, host, card)
    if found:
        return users.message(found)
    try:
        for _ in range(STEPS_MAX):
            if await asyncio.to_thread(operations.unrest, host, card) is None:
                break
            await operations.quiesce(kernel, host, card)
        else:
            return "it does not come to rest"
        await operations.quiesce(kernel, host, card)
        for function in card.functions:
            if function.sriov is not None and function.sriov.num_vfs:
                await kernel.set_vfs(function.address, 0)
        for function in card.functions:
            if function.physical_function is None and function.device_class is not FunctionClass.BRIDGE:
                await kernel.reset(function.address)
    except errors.KernelRefused as refused:
        return str(refused)
    return ""
