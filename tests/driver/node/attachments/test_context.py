"""The neighbours of an attachment, which are kept until they or their cards change."""

import datetime
import types

import pytest
from tests.scenes import attachments as scenes
from tests.scenes import cards

from drawbar.driver import clocks
from drawbar.driver.api import attachments
from drawbar.driver.node.attachments import context, matching, witnesses
from drawbar.driver.node.discovery import live
from drawbar.driver.node.inventory import index
from drawbar.fabric.witnesses import Kind

OWN, OTHER = "GPU-3f1c5ab4-3d3b-4a0e-9d4a-2b7c6d5e4f01", "GPU-9e2d7cc1-8a4b-4f6d-b1c3-7d8e9f0a1b2c"
ADDRESS = "0000:02:00.0"


class NodeWithNeighbour:
    """A node with one card, whose attachment is the neighbour of another attachment."""

    def __init__(self):
        self.arrivals = types.SimpleNamespace(subscribe=lambda _: None)
        self.show(OWN)
        (card,) = self.arrivals.inventory.cards
        by = attachments.Recognition(kind="gpu-uuid", fingerprint=witnesses.fingerprint(card))
        number = attachments.DeviceIdentifier(kind="gpu-uuid", value=OWN)
        self.fingerprint = by.fingerprint
        self.described = {
            "name": "neighbour",
            "identity": attachments.Identity(device_class="gpu", identifiers=(number,)),
            "node": attachments.NodeReport(pci_address=ADDRESS, boot_id="b", recognised_by=by),
        }
        self.asking = scenes.attachment(name="asking")
        self.attached = [self.asking, scenes.attachment(attachments.ATTACHED, **self.described)]
        self.context = context.Context(
            reporter=None,
            arrivals=self.arrivals,
            kernel=None,
            treatment=None,
            boot_id="b",
            since=clocks.steady(),
            patience=datetime.timedelta(seconds=60),
            clock=clocks.steady,
            time_of_day=clocks.time_of_day,
            holder=None,
            hooks=None,
            attached=lambda: self.attached,
        )

    def show(self, *uuids):
        """Have a card show each of these UUIDs, the first at `ADDRESS`."""
        functions = (
            cards.function(f"0000:{number:02x}:00.0", identifiers=cards.identifiers(Kind.GPU_UUID, uuid))
            for number, uuid in enumerate(uuids, 2)
        )
        seen = index.Inventory(functions=tuple(functions))
        self.arrivals.inventory, self.arrivals.cards = seen, seen.cards

    def neighbours(self):
        return self.context._neighbours(self.asking)


def test_a_neighbour_loses_its_card_when_another_card_takes_its_place():
    world = NodeWithNeighbour()
    assert world.neighbours().cards == {world.fingerprint}
    world.show(OTHER)
    assert not world.neighbours().cards
    world.show(OWN)
    assert world.neighbours().cards == {world.fingerprint}


def test_a_released_attachment_is_no_neighbour():
    world = NodeWithNeighbour()
    assert len(world.neighbours().identities) == 1
    world.attached[1] = scenes.attachment(attachments.RELEASED, **world.described)
    assert world.neighbours() == matching.NO_NEIGHBOURS


def test_a_neighbour_waits_until_its_card_is_recognised():
    world = NodeWithNeighbour()
    recognised = world.attached[1]
    world.attached[1] = scenes.attachment(attachments.ATTACHED, **(world.described | {"node": None}))
    assert [each.name for each in world.neighbours().waiting] == ["neighbour"]
    world.attached[1] = recognised
    assert not world.neighbours().waiting


def look(world, *conditions, **described):
    """Have the context remember the match of the neighbour, changed as described; return the attachment."""
    attachment = scenes.attachment(*conditions, uid="u", **(world.described | described))
    world.context.memory(attachment).match = world.context.match(attachment)
    return attachment


READY = (attachments.ATTACHED, attachments.VISIBLE)
ELSEWHERE = live.Changes(functions=frozenset({"0000:03:00.0"}))


def test_a_ready_device_is_not_affected_by_another_card():
    world = NodeWithNeighbour()
    ready = look(world, *READY)
    world.show(OWN, OTHER)
    assert not world.context.is_affected(ready, ELSEWHERE)


def test_a_ready_device_is_affected_by_a_change_of_its_card():
    world = NodeWithNeighbour()
    ready = look(world, *READY)
    world.show(OTHER)
    assert world.context.is_affected(ready, live.Changes(functions=frozenset({ADDRESS})))


def test_a_ready_device_is_affected_by_another_card_with_its_number():
    world = NodeWithNeighbour()
    ready = look(world, *READY)
    world.show(OWN, OWN)
    assert world.context.is_affected(ready, ELSEWHERE)


@pytest.mark.parametrize(
    ("conditions", "described"),
    [
        ((attachments.ATTACHED,), {}),
        (READY, {"deleting": True}),
        (READY, {"composite": attachments.Composite(name="c", devices=("d", "e"))}),
        (READY, {"identity": attachments.Identity(device_class="gpu")}),
    ],
    ids=["not ready", "in release", "of a group", "recognised without an identifier"],
)
def test_a_device_is_affected_by_every_change(conditions, described):
    world = NodeWithNeighbour()
    assert world.context.is_affected(look(world, *conditions, **described), ELSEWHERE)


def test_a_device_without_a_look_is_affected_by_every_change():
    world = NodeWithNeighbour()
    assert world.context.is_affected(scenes.attachment(*READY, uid="u", **world.described), ELSEWHERE)


def test_a_ready_device_is_affected_by_a_change_of_cxl_objects():
    world = NodeWithNeighbour()
    ready = look(world, *READY)
    assert world.context.is_affected(ready, live.Changes(objects=frozenset({"region0"})))
