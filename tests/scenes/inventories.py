"""The known state of a host's devices, as the node daemon has it after its first reading."""

from drawbar.driver.node.discovery import functions, live, reader
from drawbar.driver.node.discovery.subjects import Kind


def read_subjects(root, subjects, slots):
    """Read objects of a tree, with the names of its slots by location."""
    around = functions.surroundings(str(root), slots)
    return reader.combine([reader.read_subject(str(root), subject, around) for subject in subjects])


def read_known(root):
    """Read a tree object by object: the slots first, as for the functions their names are needed."""
    known = live.Live()
    listed = reader.list_subjects(str(root))
    slots = {subject for subject in listed if subject.kind is Kind.SLOT}
    for first in (slots, listed - slots):
        done, todo = set(), first
        while todo:
            _, further = known.take(read_subjects(root, todo, known.slot_names))
            done, todo = done | todo, further - done - todo
    return known
