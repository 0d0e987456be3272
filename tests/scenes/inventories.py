"""The known state of a host's devices, as the node daemon has it after its first reading."""

from drawbar.driver.node.discovery import live, reader
from drawbar.driver.node.discovery.subjects import Kind


def read_known(root):
    """Read a tree object by object: the slots first, as for the functions their names are needed."""
    known = live.Live()
    listed = reader.listing(str(root))
    slots = {subject for subject in listed if subject.kind is Kind.SLOT}
    for first in (slots, listed - slots):
        done, todo = set(), first
        while todo:
            _, further = known.take(reader.read_subjects(str(root), todo, known.slot_names))
            done, todo = done | todo, further - done - todo
    return known
