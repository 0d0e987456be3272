"""Which pods are waited for after a move."""

import msgspec

from drawbar.driver.api import meta
from drawbar.driver.cli.maintenance import entries
from drawbar.driver.cli.move import claim_moves


def pod(uid, owner="", phase="Running", **metadata):
    owners = (meta.OwnerReference(kind="Job", name=owner, uid=owner, controller=True),) if owner else ()
    return claim_moves.Pod(
        metadata=meta.ObjectMeta(name=uid, uid=uid, owner_references=owners, **metadata),
        status=claim_moves.Status(phase=phase),
    )


def make_move(*pods):
    nothing = entries.Plan(on=True, changes=(), devices=())
    return claim_moves.Move(claims=("default/c",), devices=(), change=nothing, pods=pods, spare={})


def test_each_pod_of_a_controller_is_replaced_by_one_that_was_not_there_and_runs():
    planned = make_move(pod("a", "job"), pod("b", "job"), pod("c", "other"), pod("d"))
    before = frozenset({"a", "b", "c", "d", "old"})
    assert claim_moves.count_missing(planned, before, []) == 3
    there = [pod("old", "job"), pod("x", "job", phase="Pending"), pod("y", "job", deletion_timestamp="now")]
    assert claim_moves.count_missing(planned, before, there) == 3
    assert claim_moves.count_missing(planned, before, [*there, pod("z", "job"), pod("w", "other")]) == 1
    assert (
        claim_moves.count_missing(planned, before, [pod("q", "job"), pod("z", "job"), pod("v", "job")]) == 1
    )


def test_who_has_no_controller_is_not_waited_for():
    assert claim_moves.count_missing(make_move(pod("d")), frozenset({"d"}), []) == 0


def test_a_move_back_only_removes_its_own_entries():
    change = entries.Change(fabric="f", devices=frozenset({"d1"}))
    planned = make_move(pod("a"))
    planned = msgspec.structs.replace(
        planned, change=msgspec.structs.replace(planned.change, changes=(change,))
    )
    assert (planned.back.on, planned.back.changes) == (False, (change,))
