"""Remembered resources are bounded, and forgotten with a change of what links to them."""

from hypothesis import given
from hypothesis import strategies as st

from drawbar.fabric.redfish import remembered
from drawbar.fabric.redfish.documents import Document


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def document(uri, **properties):
    return Document(uri=uri, body={"@odata.id": uri, **properties})


def test_a_change_forgets_links_of_both_states_of_a_resource():
    known = remembered.Remembered(Clock())
    for uri in ("/a", "/b", "/c"):
        known.note(uri, document(uri))
    known.note("/block", document("/block", Processors=[{"@odata.id": "/a"}]))
    known.note("/block", document("/block", Processors=[{"@odata.id": "/a"}]))
    assert "/a" in known
    known.note("/block", document("/block", Processors=[{"@odata.id": "/b"}]))
    assert [uri in known for uri in ("/a", "/b", "/c", "/block")] == [False, False, True, True]


def test_the_oldest_are_those_that_were_read_first():
    clock = Clock()
    known = remembered.Remembered(clock)
    for uri in ("/a", "/b", "/c"):
        known.note(uri, document(uri))
    clock.now = 7.0
    known.note("/a", document("/a"))
    assert known.oldest(2) == {"/b", "/c"}
    assert (known.age("/a"), known.age("/b")) == (0.0, 7.0)
    known.keep_only({"/a"})
    assert len(known) == 1


@given(sizes=st.lists(st.integers(min_value=0, max_value=2 * remembered.RESOURCE_BYTES_MAX), max_size=40))
def test_the_memory_is_bounded(sizes):
    known = remembered.Remembered(Clock())
    for number, size in enumerate(sizes):
        known.note(f"/{number % 20}", document(f"/{number % 20}", text="x" * size))
        fits = size + 100 < remembered.RESOURCE_BYTES_MAX
        assert (f"/{number % 20}" in known) or not fits
    held = sum(len(known.find(uri).body["text"]) for uri in known.oldest(len(known)))
    assert held <= len(known) * remembered.RESOURCE_BYTES_MAX


def test_the_oldest_are_forgotten_when_all_together_are_too_large():
    known = remembered.Remembered(Clock())
    size = remembered.RESOURCE_BYTES_MAX - 100
    most = remembered.BYTES_MAX // size
    for number in range(2 * most):
        known.note(f"/{number}", document(f"/{number}", text="x" * size))
    assert len(known) <= most
    assert f"/{2 * most - 1}" in known
    assert "/0" not in known
