"""What a cluster holds of a fabric, as the value that a session is given."""

import datetime

import msgspec
import pytest
from tests.scenes.attachmentplan import ATTACHED, INVISIBLE, NOW, RELEASED, attachment

from drawbar.driver.api import meta
from drawbar.driver.controller.offers import holdings
from drawbar.driver.kube import kinds

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
def test_a_holding_has_the_report_of_its_devices_node(conditions, node_gone, report):
    held = holdings.Holdings.from_parts([holdings.Holding.from_attachment(attachment(*conditions))])
    held = held.replace_absence("n1", NOW if node_gone else None)
    assert held.reports(NOW) == {"d": report}


def test_a_node_counts_as_gone_from_its_moment_on():
    held = holdings.Holdings.from_parts([holdings.Holding.from_attachment(attachment(ATTACHED, VISIBLE))])
    later = NOW + datetime.timedelta(seconds=30)
    held = held.replace_absence("n1", later)
    assert held.reports(NOW) == {"d": SHOWS}
    assert held.reports(later) == {"d": SILENT}
    assert held.replace_absence("n1", None).reports(later) == {"d": SHOWS}


def test_only_real_changes_make_another_value():
    part = holdings.Holding(name="d", uid="u", host_id="h1")
    empty = holdings.Holdings()
    held = empty.add_part(part)
    assert (dict(empty.parts), held.parts["d"], held.by_uid["u"]) == ({}, part, part)
    assert held.add_part(part) is held
    assert held.replace_absence("n9", None) is held
    assert held.replace_slice("s", None) is held
    assert held.remove_part("d") == empty
    assert empty.remove_part("d") is empty


def test_the_absence_of_a_node_goes_with_its_last_part():
    first, second = (holdings.Holding(name=name, uid=name, host_id="h1", node="n1") for name in ("d", "e"))
    held = holdings.Holdings().add_part(first, NOW).add_part(second, NOW)
    assert held.remove_part("d").gone_at == {"n1": NOW}
    assert held.remove_part("d").remove_part("e") == holdings.Holdings()
    moved = msgspec.structs.replace(second, node="n2")
    assert held.remove_part("d").add_part(moved).gone_at == {}


async def test_a_session_learns_every_change_of_the_clusters_holdings(controller_world, until):
    async with controller_world() as cluster:
        controller = await cluster.controller()
        await cluster.make_fabric()
        await cluster.wait_for_slices()
        view = controller._cluster

        async def wait_for_holdings():
            """Return what the session was given, once that is everything that the cluster holds."""

            async def read_holdings():
                return view.sessions.get("fab").inventory.held

            return await until(read_holdings, lambda value: value == view.holdings("fab"))

        held = await wait_for_holdings()
        assert (held.parts, held.claimed, "disk-0" in held.list_published()) == ({}, frozenset(), True)
        await cluster.allocate("disk-0")
        await cluster.wait_until_attached("disk-0")
        held = await wait_for_holdings()
        assert (held.parts.keys(), held.claimed, held.gone_at) == ({"disk-0"}, {"disk-0"}, {})
        (part,) = held.parts.values()
        await cluster.api.delete(kinds.NODE, part.node)
        await until(wait_for_holdings, lambda value: part.node in value.gone_at)
        await cluster.deallocate()
        await cluster.release_attachments("fab.disk-0")
        held = await wait_for_holdings()
        assert (held.parts, held.claimed) == ({}, frozenset())
