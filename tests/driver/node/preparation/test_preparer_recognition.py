"""Prepare of a device whose card shows, since it was recognised, a number of another device."""

import functools

import msgspec
import pytest

from drawbar.driver.api import attachments
from drawbar.driver.node import errors
from drawbar.driver.node.attachments import matching, witnesses

REPORTED = {"d1's": ("SN1", None), "another's": ("SN9", "DeviceNotVisible")}


def with_identity(attachment, card, serial):
    """Return the attachment of a device with this serial number, for which the node had taken that card by its slot."""
    number = attachments.DeviceIdentifier(kind="nvme-serial", value=serial.lower())
    identity = attachments.Identity(device_class="nvme", identifiers=(number,), pci_id="1b36:0010")
    by = attachments.Recognition(kind="slot", fingerprint=witnesses.fingerprint(card))
    replace = msgspec.structs.replace
    node = replace(attachment.status.node, recognised_by=by, pci_address=card.address)
    return replace(
        attachment,
        spec=replace(attachment.spec, identity=identity),
        status=replace(attachment.status, node=node),
    )


def card_of(world, attachment):
    """Return the card as the daemon finds it."""
    match = matching.match(world.arrivals.inventory, attachment.identity, record=attachment.status.node)
    return match.card if matching.is_expected(match, attachment) else None


@pytest.mark.parametrize("whose", REPORTED)
async def test_a_card_that_shows_the_number_of_another_device_is_not_handed_out(world, whose):
    serial, reason = REPORTED[whose]
    name = await world.claim()
    shown = world.card(world.make_full_attachment("d1", name.uid))
    world.card = functools.partial(card_of, world)
    await world.restart_preparer()
    world.attached = [with_identity(world.make_full_attachment("d1", name.uid), shown, serial)]
    if reason is None:
        await world.preparer.prepare(name)
        assert world.list_recorded_uids() == [name.uid]
        return
    with pytest.raises(errors.PrepareError) as error:
        await world.preparer.prepare(name)
    assert error.value.reason == reason
    assert (world.cdi(), world.list_recorded_uids()) == ({}, [])
