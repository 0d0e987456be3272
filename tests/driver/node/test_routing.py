"""What a change on the node wakes, row by row."""

import pytest

from drawbar.driver.node import routing
from drawbar.driver.node.routing import Examine, Part, Reconcile

TWO = ("f.a", "f.b")
FUNCTIONS = frozenset({"0000:01:00.0"})
CASES = {
    "attachment: local pool": (
        routing.AttachmentChange(name="g.x", own=False, card=True),
        routing.AttachmentChange(name="f.a", own=True, card=False),
        (Part.LOCAL_POOL,),
    ),
    "own attachment: itself, waiting claims": (
        routing.AttachmentChange(name="f.a", own=True, card=False),
        routing.AttachmentChange(name="f.a", own=False, card=True),
        (Reconcile("f.a"), Part.WAITING_CLAIMS),
    ),
    "hardware: every attachment": (
        routing.HardwareChange(functions=frozenset(), attachments=TWO),
        routing.HardwareChange(functions=FUNCTIONS, attachments=()),
        (Reconcile("f.a"), Reconcile("f.b")),
    ),
    "hardware: waiting claims, local pool, cleaning, demands": (
        routing.HardwareChange(functions=frozenset(), attachments=()),
        None,
        (Part.WAITING_CLAIMS, Part.LOCAL_POOL, Part.CLEANING, Part.DEMANDS),
    ),
    "cleaning: waiting claims, local pool, demands": (
        routing.CleaningChange(),
        None,
        (Part.WAITING_CLAIMS, Part.LOCAL_POOL, Part.DEMANDS),
    ),
    "demand: waiting claims, local pool": (
        routing.DemandChange(),
        None,
        (Part.WAITING_CLAIMS, Part.LOCAL_POOL),
    ),
    "neighbour: local pool": (routing.NeighbourChange(attachments=()), None, (Part.LOCAL_POOL,)),
    "neighbour: every attachment": (
        routing.NeighbourChange(attachments=TWO),
        routing.NeighbourChange(attachments=()),
        (Reconcile("f.a"), Reconcile("f.b")),
    ),
    "hardware: health": (
        routing.HardwareChange(functions=FUNCTIONS, attachments=()),
        None,
        (Examine(FUNCTIONS),),
    ),
    "holder: the device's attachment": (
        routing.HolderChange(attachments=("f.a",)),
        routing.HolderChange(attachments=()),
        (Reconcile("f.a"),),
    ),
    "holder: local pool": (routing.HolderChange(attachments=()), None, (Part.LOCAL_POOL,)),
    "verdict: the device's attachment": (
        routing.VerdictChange(attachments=("f.a",), local=False),
        routing.VerdictChange(attachments=(), local=True),
        (Reconcile("f.a"),),
    ),
    "verdict: local pool": (
        routing.VerdictChange(attachments=(), local=True),
        routing.VerdictChange(attachments=("f.a",), local=False),
        (Part.LOCAL_POOL,),
    ),
}


def test_every_row_has_its_case():
    assert [row.name for row in routing.ROWS] == list(CASES)


@pytest.mark.parametrize("row", routing.ROWS, ids=lambda row: row.name)
def test_a_row_wakes_what_it_says_and_only_where_it_matters(row):
    matters, does_not, wakes = CASES[row.name]
    assert row.on is type(matters)
    assert row.when(matters)
    assert tuple(row.wakes(matters)) == wakes
    assert set(wakes) <= set(routing.route(matters))
    if does_not is None:
        return
    assert not row.when(does_not)
    assert not set(wakes) & set(routing.route(does_not))


def test_each_thing_is_woken_once():
    woken = routing.route(routing.HardwareChange(functions=FUNCTIONS, attachments=("f.a", "f.a")))
    assert woken == (
        Reconcile("f.a"),
        Part.WAITING_CLAIMS,
        Part.LOCAL_POOL,
        Part.CLEANING,
        Part.DEMANDS,
        Examine(FUNCTIONS),
    )
