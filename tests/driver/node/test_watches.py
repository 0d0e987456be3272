"""The keys that each reconciler of a node daemon maps a change to, row by row."""

import pytest

from drawbar.driver import watching
from drawbar.driver.node import watches

TWO = ("f.a", "f.b")
FUNCTIONS = frozenset({"0000:01:00.0"})
EVERYTHING = (watches.ALL,)
OWN = watches.AttachmentChange(name="f.a", own=True, card=False)
FOREIGN = watches.AttachmentChange(name="g.x", own=False, card=True)
HARDWARE = watches.HardwareChange(functions=FUNCTIONS, attachments=TWO)
CLEANING, DEMAND = watches.CleaningChange(), watches.DemandChange()
NEIGHBOUR = watches.NeighbourChange(attachments=TWO)
HOLDER = watches.HolderChange(pool="f", device="a", attachments=("f.a",))
VERDICT = watches.VerdictChange(attachments=("f.a",), local=False)
LOCAL = watches.VerdictChange(attachments=(), local=True)
# By the row's name: a change, and its keys.
CASES = {
    "own attachment: itself": [(OWN, ("f.a",)), (FOREIGN, ())],
    "hardware: affected attachments": [(HARDWARE, TWO)],
    "neighbour: every attachment": [(NEIGHBOUR, TWO)],
    "holder: the device's attachment": [(HOLDER, ("f.a",))],
    "verdict: the device's attachment": [(VERDICT, ("f.a",)), (LOCAL, ())],
    "hardware: health": [(HARDWARE, (FUNCTIONS,))],
    "own attachment: waiting claims": [(OWN, EVERYTHING), (FOREIGN, ())],
    "hardware: waiting claims": [(HARDWARE, EVERYTHING)],
    "cleaning: waiting claims": [(CLEANING, EVERYTHING)],
    "demand: waiting claims": [(DEMAND, EVERYTHING)],
    "attachment: local pool": [(OWN, ()), (FOREIGN, EVERYTHING)],
    "hardware: local pool": [(HARDWARE, EVERYTHING)],
    "cleaning: local pool": [(CLEANING, EVERYTHING)],
    "demand: local pool": [(DEMAND, EVERYTHING)],
    "neighbour: local pool": [(NEIGHBOUR, EVERYTHING)],
    "holder: local pool": [(HOLDER, EVERYTHING)],
    "verdict: local pool": [(VERDICT, ()), (LOCAL, EVERYTHING)],
    "hardware: cleaning": [(HARDWARE, EVERYTHING)],
    "holder: cleaning": [(HOLDER, (("f", "a"),))],
    "hardware: demands": [(HARDWARE, EVERYTHING)],
    "cleaning: demands": [(CLEANING, EVERYTHING)],
}
TABLES = {
    "attachments": watches.ATTACHMENTS,
    "health": watches.HEALTH,
    "waiting claims": watches.WAITING_CLAIMS,
    "local pool": watches.LOCAL_POOL,
    "cleaning": watches.CLEANING,
    "demands": watches.DEMANDS,
}
ROWS = [row for table in TABLES.values() for row in table]


def test_every_row_has_its_case():
    assert [row.name for row in ROWS] == list(CASES)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_change_maps_to_the_keys_that_its_row_names(row):
    for change, keys in CASES[row.name]:
        assert isinstance(change, row.on)
        assert (tuple(row.keys(change)) if row.when(change) else ()) == keys, change


def test_a_change_wakes_each_reconciler_that_watches_it_for_each_key_once():
    woken = []
    dispatcher = watching.Dispatcher(
        *(
            watching.Reconciler(table, lambda key, name=name: woken.append((name, key)))
            for name, table in TABLES.items()
        )
    )
    dispatcher.tell(watches.HardwareChange(functions=FUNCTIONS, attachments=("f.a", "f.a")))
    assert woken == [
        ("attachments", "f.a"),
        ("health", FUNCTIONS),
        ("waiting claims", watches.ALL),
        ("local pool", watches.ALL),
        ("cleaning", watches.ALL),
        ("demands", watches.ALL),
    ]
