"""When an attached device that another driver offers as well is reported, and when no more."""

import datetime

import msgspec
import pytest
from tests.scenes import attachments as scenes
from tests.scenes import cards, waiting

from drawbar.driver.api import attachments, meta, otherslices
from drawbar.driver.catalogue import reasons
from drawbar.driver.node.attachments import exclusiveness
from drawbar.driver.node.inventory import model

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
ADDRESS = "0000:3b:00.0"
CARD = model.Card(functions=(cards.function(ADDRESS),))
QUIET = 300.0


def offer(address=ADDRESS, name="gpu-0"):
    return otherslices.OtherDevice(
        driver="gpu.nvidia.com", pool="node-1", name=name, addresses=frozenset({address})
    )


class ReportedAttachment:
    """One attachment, the offers of others, and a reporter that keeps the condition."""

    def __init__(self):
        node = attachments.NodeReport(pci_address=ADDRESS)
        self.attachment = scenes.attachment(attachments.VISIBLE, name="fab.d", node=node)
        self.clock, self.offers, self.reports, self.card = waiting.Clock(), [], [], CARD
        self.reporter = exclusiveness.Exclusiveness(
            reporter=self,
            card=lambda _: self.card,
            offered=lambda: self.offers,
            quiet_seconds=QUIET,
            clock=self.clock,
        )

    async def exclusive(self, attachment, *, status, reason, message, now):
        self.reports.append((status, reason, message))
        old = attachment.status.conditions
        fresh = meta.transition(
            old, "Exclusive", status=status, reason=reason, message=message, now=meta.timestamp(now)
        )
        conditions = (*(each for each in old if each.type != "Exclusive"), fresh)
        status_ = msgspec.structs.replace(attachment.status, conditions=conditions)
        self.attachment = msgspec.structs.replace(attachment, status=status_)

    async def look(self, seconds=0.0):
        self.clock.now += seconds
        return await self.reporter.reconcile(self.attachment, NOW)


async def test_a_second_offer_is_reported_once_with_the_driver_and_the_page():
    world = ReportedAttachment()
    world.offers = [offer(), offer("0000:ff:00.0", "gpu-1")]
    for _ in range(3):
        assert await world.look() is None
    ((status, reason, message),) = world.reports
    assert (status, reason) == (False, reasons.OFFERED_BY_ANOTHER_DRIVER)
    assert f"driver gpu.nvidia.com offers this device ({ADDRESS}), too, as device gpu-0" in message
    assert "docs/beside-other-drivers.md" in message
    assert exclusiveness.count([world.attachment]) == 1


async def test_a_driver_that_is_updated_causes_one_report_and_its_end_another():
    world = ReportedAttachment()
    world.offers = [offer()]
    await world.look()
    world.offers = []
    assert await world.look(10.0) == QUIET - 10.0
    world.offers = [offer()]
    assert await world.look(10.0) is None
    world.offers = []
    assert await world.look(10.0) == QUIET - 10.0
    assert await world.look(100.0) == QUIET - 110.0
    assert len(world.reports) == 1
    assert await world.look(200.0) is None
    assert [report[:2] for report in world.reports[1:]] == [(True, reasons.OFFERED_BY_THIS_DRIVER)]
    assert exclusiveness.count([world.attachment]) == 0


async def test_the_report_of_a_former_daemon_ends_after_the_quiet_time():
    world = ReportedAttachment()
    world.offers = [offer()]
    await world.look()
    successor = ReportedAttachment()
    successor.attachment = world.attachment
    assert await successor.look(50.0) == QUIET
    assert await successor.look(QUIET) is None
    assert [report[0] for report in successor.reports] == [True]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"card": None}, id="the-card-is-not-here"),
        pytest.param({"offers": [offer("0000:3c:00.0")]}, id="another-card"),
        pytest.param({"offers": []}, id="no-offer"),
    ],
)
async def test_without_a_second_offer_nothing_is_written(change):
    world = ReportedAttachment()
    world.offers = [offer()]
    for name, value in change.items():
        setattr(world, name, value)
    assert await world.look() is None
    assert world.reports == []


async def test_a_device_that_is_not_visible_or_leaves_is_not_judged():
    world = ReportedAttachment()
    world.offers = [offer()]
    node = attachments.NodeReport(pci_address=ADDRESS)
    for unjudged in (
        scenes.attachment(node=node),
        scenes.attachment(attachments.VISIBLE, node=node, deleting=True),
    ):
        world.attachment = unjudged
        assert await world.look() is None
    assert world.reports == []
