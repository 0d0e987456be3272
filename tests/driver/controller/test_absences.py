"""When a node without a Node object counts as gone."""

import datetime
from types import SimpleNamespace

from drawbar.driver.api import core, fabrics, meta
from drawbar.driver.controller import absences

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
NODE = core.Node(metadata=meta.ObjectMeta(name="n"))
DEAD = core.Node(metadata=NODE.metadata, spec=core.NodeSpec(taints=(core.Taint(key=core.OUT_OF_SERVICE),)))


def seconds(number):
    return datetime.timedelta(seconds=number)


class Nodes(dict):
    """The Nodes that can be read, by name, and the names of those that cannot."""

    unreadable = frozenset()

    def is_unreadable(self, name):
        return name in self.unreadable


class AbsencesScene:
    """Nodes, and Fabrics with different patience."""

    def __init__(self, **graces):
        self.now, self.nodes = START, Nodes()
        sessions = {
            name: SimpleNamespace(
                spec=fabrics.FabricSpec(
                    adapter="a", endpoint="e", policy=fabrics.Policy(node_gone_seconds=grace)
                )
            )
            for name, grace in graces.items()
        }
        self.absences = absences.Absences(self.nodes, sessions, lambda: self.now)


def test_a_node_that_is_there_is_not_gone_and_one_out_of_service_is_gone_at_once():
    world = AbsencesScene(f=60)
    world.nodes["n"] = NODE
    assert world.absences.gone_at("n", ["f"]) is None
    world.nodes["n"] = DEAD
    assert world.absences.gone_at("n", ["f"]) <= world.now


def test_a_missing_node_is_gone_after_the_longest_grace_from_when_it_was_first_missed():
    world = AbsencesScene(short=10, long=60)
    world.absences.see("n")
    world.now += seconds(20)
    assert world.absences.gone_at("n", ["short"]) == START + seconds(10)
    assert world.absences.gone_at("n", ["short", "long", "unserved"]) == START + seconds(60)


def test_a_node_that_cannot_be_read_is_not_gone():
    world = AbsencesScene(f=60)
    world.nodes.unreadable = {"n"}
    world.absences.see("n")
    world.now += seconds(100)
    assert world.absences.gone_at("n", ["f"]) is None
    world.nodes.unreadable = frozenset()
    assert world.absences.gone_at("n", ["f"]) == START + seconds(160), "its whole grace"


def test_a_node_that_came_back_has_its_whole_grace_again():
    world = AbsencesScene(f=60)
    world.absences.see("n")
    world.nodes["n"] = NODE
    world.absences.see("n")
    world.now += seconds(100)
    del world.nodes["n"]
    assert world.absences.gone_at("n", ["f"]) == START + seconds(160)


def test_a_fabric_that_is_not_served_gives_no_grace():
    world = AbsencesScene()
    assert world.absences.gone_at("n", ["f"]) == START


def test_nodes_that_never_come_back_are_not_remembered_without_end():
    world = AbsencesScene(f=60)
    for number in range(absences.ABSENT_LIMIT + 1):
        world.absences.see(f"n{number}")
    world.now += seconds(1)
    assert world.absences.gone_at("n1", ["f"]) == START + seconds(60)
    assert world.absences.gone_at("n0", ["f"]) == START + seconds(61)
