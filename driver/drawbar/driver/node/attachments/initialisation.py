"""The initialisation of one device for its claim: driver, versions, virtual functions, hook or bitstream, in this order.

Sources: Documentation/ABI/stable/sysfs-module (`version`); drivers/nvme/host/sysfs.c (`firmware_rev`).
"""

import datetime
import re
from collections.abc import Mapping
from pathlib import Path
from typing import assert_never

from drawbar.driver import naturalorder
from drawbar.driver.api import attachments, parameters
from drawbar.driver.catalogue import reasons
from drawbar.driver.node import classes, errors
from drawbar.driver.node.attachments import actions, functions, loading, plan
from drawbar.driver.node.attachments.context import Context, Memory
from drawbar.driver.node.inventory import files, model, pci

_NOT_OFFERED = (
    "its class has its virtual functions offered, and this node offers none of such devices: set localPool.virtualFunctions, and "
    "have localPool.classes name the class, or leave virtualFunctions.offered out"
)
_IN_ITS_PLACE = (
    "its class asks for virtual functions, and this node offers those of its own devices in place of the device: leave virtualFunctions "
    "out of the class, or turn localPool.virtualFunctions off"
)
_FINAL: Mapping[type[Exception], str] = {
    errors.HookFailed: reasons.HOOK_FAILED,
    errors.BitstreamNotLoaded: reasons.BITSTREAM_NOT_LOADED,
    errors.CannotInterleave: reasons.NOT_INTERLEAVED,
    errors.CannotSetUp: reasons.FUNCTIONS_NOT_SET_UP,
}
"""The reasons of failures that another attempt does not change."""
_ALL_ONES = "its configuration space answers all ones"


class Initialisation:
    """The initialisation of one device, for its attachment at the beginning of a round."""

    def __init__(self, context: Context, attachment: attachments.DeviceAttachment) -> None:
        self._context = context
        self._attachment = attachment
        self._memory = context.memory(attachment)

    async def run(self, card: model.Card, now: datetime.datetime) -> None:
        """Take all steps towards a ready device that need no wait, and remember the result."""
        reason, final, waits = "", False, False
        try:
            if await self._is_silent(card):
                missing, reason = _ALL_ONES, reasons.LINK_DOWN
            else:
                missing = self._find_awaited_member()
                waits = bool(missing)
                operations = self._operations
                if not waits:
                    device_parameters = parameters.DeviceParameters(memory=self._attachment.spec.memory)
                    missing = await operations.initialise(self._context.kernel, card, device_parameters) or ""
                old = await self._find_too_old(card) if not missing else None
                if old is not None:
                    missing, reason, final = old, reasons.VERSION_TOO_OLD, True
                elif not missing:
                    missing = await self._make_functions(card, needs_driver=operations.needs_driver)
                    missing = missing or self._hook(card)
        except errors.KernelRefused as refused:
            missing = str(refused)
        except tuple(_FINAL) as failed:
            missing, reason, final = str(failed), _FINAL[type(failed)], True
        remember(self._memory, self._attachment, card, missing, now, reason=reason, final=final, waits=waits)

    @property
    def _operations(self) -> classes.Class:
        """Return the class of the device, as a member of its composite."""
        operations = classes.by_name(self._attachment.identity.device_class)
        return operations.for_composite(self._context.companions(self._attachment))

    def _find_awaited_member(self) -> str:
        """Return the member that an interleaved device waits for, in a clause; empty without one."""
        if not self._attachment.spec.memory.interleave:
            return ""
        return plan.find_awaited(self._attachment, self._context.members(self._attachment)) or ""

    async def _find_too_old(self, card: model.Card) -> str | None:
        claim = self._attachment.spec.claim
        if claim is None or claim.minimum_versions == attachments.Versions():
            return None
        kernel, least = self._context.kernel, claim.minimum_versions
        what = f"to show the versions of {card.address}"
        return await kernel.run(
            f"the versions of {card.address}", what, lambda: too_old(card, least, kernel.sysfs)
        )

    async def _is_silent(self, card: model.Card) -> bool:
        """Return whether the configuration space answers nothing; the read of a sick device may hang."""
        kernel, target = self._context.kernel, f"the configuration space of {card.address}"
        return await kernel.run(
            target, f"to read {target}", lambda: pci.is_silent(f"{kernel.sysfs}/{card.first.path}")
        )

    def _may_be_in_use(self, card: model.Card) -> bool:
        """Return whether pods of the claim may use the device already. Then it is not set up again."""
        attachment, claim, node = self._attachment, self._attachment.spec.claim, self._attachment.status.node
        return (
            claim is not None
            and node is not None
            and attachment.holds(attachments.VISIBLE)
            and (node.claim_uid, node.boot_id) == (claim.uid, self._context.boot_id)
            and card.has_stayed(node.pci_address, node.arrival)
        )

    async def _make_functions(self, card: model.Card, *, needs_driver: bool) -> str:
        """Take the next steps to the virtual functions of the claim's class; return the missing part, or an empty text.

        Raises:
            errors.CannotSetUp: the device can never have these virtual functions.
            errors.KernelRefused: the kernel refused a step.
        """
        spec, memory = self._attachment.spec, self._memory
        wanted = spec.claim.virtual_functions if spec.claim is not None else None
        if wanted is None or not wanted.groups or self._may_be_in_use(card):
            return ""
        impossible = functions.problem(card, wanted)
        if wanted.offered and not self._context.offers(self._attachment.identity.device_class):
            impossible = impossible or _NOT_OFFERED
        if spec.is_local and self._context.offers(self._attachment.identity.device_class):
            impossible = impossible or _IN_ITS_PLACE
        if impossible is not None:
            raise errors.CannotSetUp(impossible)
        begun = memory.functions_for == self._attachment.user
        steps = tuple(
            functions.steps(card, wanted, key=f"{spec.fabric or spec.node_name}/{spec.device}", begun=begun)
        )
        for step in steps:
            await self._set_up(step)
        if steps and not begun:
            memory.functions_for = self._attachment.user
            return "its virtual functions are being made"
        return functions.find_missing(card, wanted, needs_driver=needs_driver)

    async def _set_up(self, step: functions.Step) -> None:
        kernel = self._context.kernel
        match step:
            case functions.Make(address=address, count=count):
                await kernel.set_vfs(address, 0)
                await kernel.set_vf_probing(address, on=False)
                await kernel.set_vfs(address, count)
            case functions.SetLinks(interface=interface, links=links):
                what = f"to set up the virtual functions of {interface}"
                await kernel.run(interface, what, lambda: self._context.links(interface, links))
            case functions.GiveDriver(owner=owner, address=address, driver=driver, instead=instead):
                await kernel.set_vf_probing(owner, on=True)
                if instead is not None:
                    await kernel.unbind(address)
                if driver is not None:
                    await kernel.override_driver(address, driver)
                await kernel.probe(address)
            case _:
                assert_never(step)

    def _hook(self, card: model.Card) -> str:
        """Run the hook of the claim's class or load the bitstream, once for the claim; return the missing step, or an empty text.

        Raises:
            errors.HookFailed: the hook did not succeed.
            errors.BitstreamNotLoaded: there is no hook, and the bitstream is not loaded.
        """
        attachment, memory, context = self._attachment, self._memory, self._context
        asked = attachment.spec.initialise
        if asked is None or self._may_be_in_use(card):
            return ""
        if memory.hook_for != self._attachment.user:
            memory.end_hook()
            hook = loading.begin(context.hooks, attachment, asked, card)
            memory.begin_hook(attachment.user, hook, is_load=not asked.hook)
            context.reporter.report_hook(attachment, asked)
        if memory.hook is None or not memory.hook.done():
            return f"its hook {asked.hook} is running" if asked.hook else f"{asked.bitstream} is being loaded"
        why = memory.hook.result()
        if why:
            raise errors.HookFailed(why) if asked.hook else errors.BitstreamNotLoaded(why)
        return ""


def remember(
    memory: Memory,
    attachment: attachments.DeviceAttachment,
    card: model.Card | None,
    missing: str,
    now: datetime.datetime,
    *,
    reason: str = "",
    final: bool = False,
    waits: bool = False,
) -> None:
    """Remember the result of an attempt. The start of consecutive failures of the same kind is kept."""
    before = memory.attempt
    same = before is not None and (before.card is None) == (card is None) and bool(before.missing)
    since = before.since if before is not None and same else now
    waited = now if waits else before.waited if before is not None else None
    memory.attempt = actions.Attempt(
        card=card,
        missing=missing,
        memory=attachment.spec.memory,
        reason=reason,
        final=final,
        at=now,
        since=since,
        waited=waited,
    )


_PARTS = re.compile(r"[0-9]+|[^\W\d_]+")


def too_old(card: model.Card, least: attachments.Versions, sysfs: Path) -> str | None:
    """Return the part that is too old or shows no version, in a clause with the remedy, or None. It reads files.

    Args:
        card: the device, with its driver bound.
        least: the minimum versions.
        sysfs: the path of the host's sysfs.
    """
    driver = card.first.driver
    shown = files.text(f"{sysfs}/bus/pci/drivers/{driver}/module/version") if driver else None
    firmware = next((nvme.firmware for nvme in card.first.nvme if nvme.firmware), None)
    for what, version, wanted in (
        (f"its driver {driver}", shown, least.driver),
        ("its firmware", firmware, least.firmware),
    ):
        if not wanted:
            continue
        if version is None:
            return f"{what} shows no version to the kernel, and at least {wanted} is asked for: leave that out for such devices"
        if order(version) < order(wanted):
            return f"{what} has version {version}, and at least {wanted} is asked for: bring it up to date"
    return None


def order(version: str) -> naturalorder.SortKey:
    """Return the sort key of a version. Numbers compare as numbers, words alphabetically; a number precedes a word."""
    return tuple(naturalorder.number_key(part) or (1, 0, part.lower()) for part in _PARTS.findall(version))
