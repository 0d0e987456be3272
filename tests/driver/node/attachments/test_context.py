"""The neighbours of an attachment, which are kept until they or their cards change."""

import datetime
import types

from tests.scenes import attachments as scenes
from tests.scenes import cards

from drawbar.driver import clocks
from drawbar.driver.api import attachments
from drawbar.driver.node.attachments import context, matching, witnesses
from drawbar.driver.node.inventory import index
from drawbar.fabric.witnesses import Kind

OWN, OTHER = "GPU-3f1c5ab4-3d3b-4a0e-9d4a-2b7c6d5e4f01", "GPU-9e2d7cc1-8a4b-4f6d-b1c3-7d8e9f0a1b2c"
ADDRESS = "0000:02:00.0"


class World:
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

    def show(self, uuid):
        """Have the card show this UUID."""
        shown = cards.identifiers(Kind.GPU_UUID, uuid)
        seen = index.Inventory(functions=(cards.function(ADDRESS, identifiers=shown),))
        self.arrivals.inventory, self.arrivals.cards = seen, seen.cards

    def neighbours(self):
        return self.context._neighbours(self.asking)


def test_a_neighbour_loses_its_card_when_another_card_takes_its_place():
    world = World()
    assert world.neighbours().cards == {world.fingerprint}
    world.show(OTHER)
    assert not world.neighbours().cards
    world.show(OWN)
    assert world.neighbours().cards == {world.fingerprint}


def test_a_released_attachment_is_no_neighbour():
    world = World()
    assert len(world.neighbours().identities) == 1
    world.attached[1] = scenes.attachment(attachments.RELEASED, **world.described)
    assert world.neighbours() == matching.NO_NEIGHBOURS


def test_a_neighbour_waits_until_its_card_is_recognised():
    world = World()
    recognised = world.attached[1]
    world.attached[1] = scenes.attachment(attachments.ATTACHED, **(world.described | {"node": None}))
    assert [each.name for each in world.neighbours().waiting] == ["neighbour"]
    world.attached[1] = recognised
    assert not world.neighbours().waiting
