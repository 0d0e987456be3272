"""A Fabric shows which of the controller's writes the API server refuses, until they are accepted."""

import functools

import pytest
from tests.scenes import maintenances

from drawbar.driver.api import claims
from drawbar.driver.controller import labels, names, refusals
from drawbar.driver.kube import client, errors, kinds
from drawbar.mocks.apiserver import faults

CONTROLLER = "system:serviceaccount:drawbar:drawbar-controller"


class Ledger(refusals.Refusals):
    """Records which Fabrics changed, and tries writes."""

    def __init__(self):
        self.changes = []
        super().__init__(self.changes.append)

    def refuse(self, *fabrics, subject="node n1", error=errors.Invalid):
        with pytest.raises(error), self.attempt(fabrics, subject):
            raise error(f"{subject} is refused")

    def accept(self, *fabrics, subject="node n1"):
        with self.attempt(fabrics, subject):
            pass


@pytest.mark.parametrize("error", [errors.Invalid, errors.Denied])
def test_a_refused_write_is_shown_by_the_fabrics_that_need_it_until_it_is_accepted(error):
    ledger = Ledger()
    ledger.refuse("a", "b", error=error)
    assert ledger.message("a") == ledger.message("b") == "node n1: node n1 is refused"
    assert ledger.message("c") == ""
    assert ledger.is_refused("node n1")
    ledger.accept("a", "b")
    assert ledger.message("a") == ledger.message("b") == ""
    assert not ledger.is_refused("node n1")
    assert ledger.changes == ["a", "b", "a", "b"]


@pytest.mark.parametrize("error", [errors.Conflict, errors.Unreachable, errors.NotFound, OSError])
def test_transient_errors_neither_count_nor_clear_a_refusal(error):
    ledger = Ledger()
    ledger.refuse("a", error=error)
    assert ledger.message("a") == ""
    ledger.refuse("a")
    ledger.refuse("a", error=error)
    assert ledger.message("a")


def test_the_same_refusal_again_is_no_change():
    ledger = Ledger()
    ledger.refuse("a")
    ledger.refuse("a")
    assert ledger.changes == ["a"]


def test_a_message_names_three_and_how_many_more_and_is_bounded():
    ledger = Ledger()
    for number in range(5):
        ledger.refuse("a", subject=f"node n{number}")
    assert ledger.message("a").count("is refused") == 3
    assert ledger.message("a").endswith("; and 2 more")
    for number in range(5):
        ledger.refuse("a", subject=f"node {number}" + "x" * 2000)
    assert len(ledger.message("a")) <= refusals.MESSAGE_LIMIT_CHARS
    assert ledger.message("a").endswith(" more")


def test_refusals_of_obsolete_writes_are_dropped():
    ledger = Ledger()
    for subject in ("node n1", "node n2", "claim default/c"):
        ledger.refuse("a", "b", subject=subject)
    ledger.retain("node ", {"node n2"})
    assert ledger.message("a") == "claim default/c: claim default/c is refused; node n2: node n2 is refused"
    ledger.drop("claim default/c")
    ledger.forget("b")
    assert ledger.message("a") == "node n2: node n2 is refused"
    assert ledger.message("b") == ""
    ledger.clear()
    assert ledger.message("a") == ""


@pytest.mark.parametrize(
    ("label", "fabrics"),
    [
        (names.node_label("a"), ("a",)),
        (names.make_closed_label("b", "M1"), ("b",)),
        (names.make_closed_label("b", "M2"), ("a", "b")),
        (names.node_label("gone"), ("a", "b")),
    ],
    ids=["reached", "closed", "of a rule that is gone", "of a Fabric that is gone"],
)
def test_a_change_of_labels_concerns_the_fabrics_that_want_it(label, fabrics):
    change = labels.Change(node="n", labels={label: None})
    assert labels.select_fabrics(change, {"a": [], "b": ["M1"]}) == fabrics


REFUSED = "ValidatingAdmissionPolicy 'x' denied request: expression resulted in error"
WRITES = {
    "labels": faults.Selection(user=CONTROLLER, verb="patch", resource="nodes"),
    "slices": faults.Selection(user=CONTROLLER, verb="create", resource="resourceslices"),
    "claims": faults.Selection(
        user=CONTROLLER, verb="patch", resource="resourceclaims", subresource="status"
    ),
    "attachments": faults.Selection(user=CONTROLLER, verb="create", resource="deviceattachments"),
}


@pytest.mark.parametrize("code", [403, 422])
@pytest.mark.parametrize("what", WRITES)
async def test_a_fabric_quotes_a_refusal_until_the_write_succeeds(controller_world, until, what, code):
    async with controller_world() as cluster:
        cluster.start()
        effect = faults.Refusal(code=code, message=REFUSED)
        if what in ("labels", "slices"):
            refusal = cluster.server.faults.add(faults.Fault(select=WRITES[what], effect=effect))
            await cluster.make_fabric()
        else:
            await cluster.make_fabric()
            await cluster.wait_for_slices()
            refusal = cluster.server.faults.add(faults.Fault(select=WRITES[what], effect=effect))
            await cluster.allocate("disk-0")

        shown = await cluster.condition("Writable", status="False")
        assert shown["reason"] == "Refused"
        assert f"{code} {REFUSED}" in shown["message"]
        refusal.lift()
        await until(
            lambda: cluster.fabric_condition("Writable"),
            lambda value: value.get("status") == "True",
            seconds=60,
        )


async def test_a_node_that_may_not_be_labelled_keeps_no_other_from_its_label(controller_world, until):
    async with controller_world() as cluster:
        select = faults.Selection(user=CONTROLLER, verb="patch", resource="nodes", name="node-1")
        cluster.server.faults.add(faults.Fault(select=select, effect=faults.Refusal(code=422)))
        cluster.start()
        await cluster.make_fabric()

        await until(
            lambda: cluster.labels("node-2"), lambda value: value.get("fabric.drawbar.dev/fab") == "true"
        )
        shown = await cluster.condition("Writable", status="False")
        assert shown["message"].startswith("node node-1: ")


ENCLOSURES = [
    {"id": f"enc-{number}", "devices": [{"id": f"gpu-{number}", "class": "gpu", "serial": f"SN{number}"}]}
    for number in range(3)
]


async def test_a_slice_that_is_refused_keeps_no_other_from_its_taints(controller_world, until):
    async with controller_world(enclosures=ENCLOSURES) as cluster:
        cluster.start()
        await cluster.make_fabric()
        stored = await until(lambda: cluster.list(kinds.SLICE), lambda value: len(value) == len(ENCLOSURES))
        # The first one of a round is refused.
        first = min(stored, key=lambda each: each["spec"]["pool"]["name"])["metadata"]["name"]
        select = faults.Selection(user=CONTROLLER, verb="update", resource="resourceslices", name=first)
        refusal = cluster.server.faults.add(
            faults.Fault(select=select, effect=faults.Refusal(code=422, message=REFUSED))
        )
        await maintenances.begin(cluster.api, devices=["*"])
        for number in (1, 2):
            await until(
                functools.partial(cluster.taints, f"gpu-{number}"),
                lambda taints: any("maintenance" in str(taint) for taint in taints),
            )
        shown = await cluster.condition("Published", status="False")
        assert f"ResourceSlice {first} (pool fab/enc-0): " in shown["message"]
        assert REFUSED in shown["message"]
        assert await cluster.taints("gpu-0") == []
        refusal.lift()
        await cluster.condition("Published", status="True")
        assert await cluster.taints("gpu-0")


@pytest.mark.parametrize("content", [client.Patch.MERGE, client.Patch.APPLY])
async def test_a_write_to_an_object_that_was_made_again_is_a_stale_view_and_no_refusal(
    controller_world, content
):
    async with controller_world() as cluster:
        await cluster.allocate("disk-0")
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "c1", "uid": "another"},
        }
        with pytest.raises(errors.Conflict, match="uid"):
            await cluster.api.patch(
                kinds.CLAIM,
                "c1",
                body,
                content=content,
                into=claims.ResourceClaim,
                namespace="default",
                subresource="status",
                manager="m",
            )
