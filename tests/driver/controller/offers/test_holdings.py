"""What a cluster holds of a fabric, as the value that a session is given."""

import datetime

import pytest
from tests.scenes.attachmentplan import ATTACHED, INVISIBLE, NOW, RELEASED, attachment

from drawbar.driver.api import meta
from drawbar.driver.controller.offers import holdings

VISIBLE = meta.Condition(type="Visible", status="True", reason="DeviceReady")
VANISHED = meta.Condition(type="Visible", status="False", reason="DeviceLost")
SHOWS, LOST, SILENT = holdings.NodeReport


@pytest.mark.parametrize(
    ("conditions", "node_gone", "report"),
    [
        pytest.param((ATTACHED, VISIBLE), False, SHOWS, id="visible"),
        pytest.param((ATTACHED, VANISHED), False, LOST, id="lost"),
        pytest.param((ATTACHED,), False, SILENT, id="not-seen-yet"),
        pytest.param((ATTACHED, INVISIBLE), False, SILENT, id="there-and-not-ready"),
        pytest.param((ATTACHED, VISIBLE, RELEASED), False, SILENT, id="let-go"),
        pytest.param((ATTACHED, VISIBLE), True, SILENT, id="its-node-is-gone"),
    ],
)
def test_what_the_node_of_a_device_reports(conditions, node_gone, report):
    held = holdings.Holdings.of([holdings.Holding.from_attachment(attachment(*conditions))])
    held = held.with_absence("n1", NOW if node_gone else None)
    assert held.reports(NOW) == {"d": report}


def test_a_node_counts_as_gone_from_its_moment_on():
    held = holdings.Holdings.of([holdings.Holding.from_attachment(attachment(ATTACHED, VISIBLE))])
    later = NOW + datetime.timedelta(seconds=30)
    held = held.with_absence("n1", later)
    assert held.reports(NOW) == {"d": SHOWS}
    assert held.reports(later) == {"d": SILENT}
    assert held.with_absence("n1", None).reports(later) == {"d": SHOWS}


def test_a_change_makes_another_value_and_what_is_the_same_makes_none():
    part = holdings.Holding(name="d", uid="u", host_id="h1")
    empty = holdings.Holdings()
    held = empty.with_part("d", part)
    assert (dict(empty.parts), held.parts["d"], held.by_uid["u"]) == ({}, part, part)
    assert held.with_part("d", part) is held
    assert held.with_absence("n9", None) is held
    assert held.with_slice("s", None) is held
    assert held.with_part("d", None) == empty
