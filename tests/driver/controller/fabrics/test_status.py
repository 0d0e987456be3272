"""What a Fabric's status shows before and after a controller serves it."""

import datetime

import pytest

from drawbar.driver.api import fabrics, meta
from drawbar.driver.controller import hosts
from drawbar.driver.controller.fabrics import status
from drawbar.driver.kube import kinds

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
CONNECTED = status.Connection(connected=True, reason="Connected", message="m")
UNAVAILABLE = status.Connection(connected=False, reason="Unavailable", message="no answer")
FABRIC = fabrics.Fabric(
    metadata=meta.ObjectMeta(name="fab"), spec=fabrics.FabricSpec(adapter="grpc", endpoint="unix:/x")
)
MAPPED = hosts.NodeMap(host_of={"node-1": "host-1"})


@pytest.mark.parametrize(
    ("connection", "nodes", "unpublished", "usable", "expected"),
    [
        pytest.param(CONNECTED, MAPPED, "", 1, ("True", "Ready"), id="all-good"),
        pytest.param(CONNECTED, MAPPED, "", None, ("True", "Ready"), id="nodes-not-judged-yet"),
        pytest.param(CONNECTED, MAPPED, "", 0, ("False", "NoUsableNode"), id="no-node-can-get-devices"),
        pytest.param(
            CONNECTED, MAPPED, "the API server refuses it", 1, ("False", "Refused"), id="not-published"
        ),
        pytest.param(CONNECTED, MAPPED, None, 1, ("False", "Connecting"), id="not-published-yet"),
        pytest.param(CONNECTED, hosts.NodeMap(), "", 0, ("False", "HostsNotMapped"), id="no-host-is-a-node"),
        pytest.param(CONNECTED, None, None, None, ("False", "Connecting"), id="not-listed-yet"),
        pytest.param(
            UNAVAILABLE,
            MAPPED,
            "",
            0,
            ("False", "Unavailable"),
            id="not-connected",
        ),
    ],
)
def test_a_fabric_is_ready_while_a_claim_can_get_a_device(connection, nodes, unpublished, usable, expected):
    view = status.View(
        connection=connection,
        nodes=nodes,
        devices=1,
        hosts=1,
        unpublished=unpublished,
        usable_nodes=usable,
    )
    wanted = status.status(FABRIC, view, dropped_fields=(), attached=0, now=NOW)
    ready = meta.find(wanted.conditions, fabrics.READY)
    assert (ready.status, ready.reason) == expected


def test_a_fabric_all_of_whose_devices_are_tainted_is_not_ready():
    view = status.View(
        connection=CONNECTED,
        nodes=MAPPED,
        devices=1,
        hosts=1,
        unpublished="",
        usable_nodes=1,
        is_all_tainted=True,
    )
    wanted = status.status(FABRIC, view, dropped_fields=(), attached=0, now=NOW)
    assert meta.find(wanted.conditions, fabrics.READY).reason == "NoUsableDevice"


@pytest.mark.parametrize(
    ("connection", "troubles", "expected"),
    [
        (CONNECTED, (), ("False", "Healthy")),
        (UNAVAILABLE, (), ("False", "NotConnected")),
        (UNAVAILABLE, ("host-1 is avoided",), ("True", "Troubles")),
    ],
)
def test_a_fabric_is_healthy_only_while_its_manager_answers(connection, troubles, expected):
    view = status.View(connection=connection, nodes=None, devices=1, hosts=1, troubles=troubles)
    wanted = status.status(FABRIC, view, dropped_fields=(), attached=0, now=NOW)
    degraded = meta.find(wanted.conditions, fabrics.DEGRADED)
    assert (degraded.status, degraded.reason) == expected


async def test_a_fabric_that_no_controller_serves_shows_that_it_waits_until_a_controller_does(
    controller_world, until
):
    async with controller_world() as cluster:
        await cluster.make_fabric()
        made = await cluster.api.read(kinds.FABRIC, "fab", into=fabrics.Fabric)
        assert [(each.type, each.status, each.reason) for each in made.status.conditions] == [
            (fabrics.CONNECTED, "Unknown", "Pending"),
            (fabrics.READY, "Unknown", "Pending"),
        ]
        assert all("Waiting for a controller" in waits.message for waits in made.status.conditions)
        cluster.start()

        async def conditions():
            fabric = await cluster.api.read(kinds.FABRIC, "fab", into=fabrics.Fabric)
            return fabric.status.conditions

        served = await until(conditions, lambda listed: meta.is_true(listed, fabrics.CONNECTED))
        assert [condition.type for condition in served].count(fabrics.CONNECTED) == 1
        assert meta.find(served, fabrics.CONNECTED).last_transition_time > "2020"
