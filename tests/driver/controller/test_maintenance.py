"""Maintenances: all of a Fabric hold together, and each shows its effect."""

import datetime

import pytest
from tests.scenes import maintenances as scenes

from drawbar.driver.api import maintenances, meta
from drawbar.driver.controller import maintenance
from drawbar.driver.kube import client, config, errors, kinds

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
LISTED = maintenance.ListedNames(devices={"gpu-1", "GPU/2", "gpu-2-x"}, nodes={"node-1"})


def item(name="work", *, fabric="fab", **spec):
    return maintenances.Maintenance(
        metadata=meta.ObjectMeta(name=name, uid=name),
        spec=maintenances.MaintenanceSpec(fabric=fabric, **spec),
    )


# --- the judgement ---


@pytest.mark.parametrize(
    ("spec", "listed", "has_fabric", "expected", "words"),
    [
        ({"devices": ("gpu-1",)}, LISTED, True, (True, "Applied"), "it is in maintenance"),
        ({"devices": ("GPU/2",), "nodes": ("node-1",)}, LISTED, True, (True, "Applied"), "all 2 entries"),
        ({"devices": ("*",)}, LISTED, True, (True, "Applied"), ""),
        ({"devices": ("gpu-1", "gpu-9")}, LISTED, True, (True, "PartlyApplied"), "has no device gpu-9"),
        (
            {"devices": ("gpu-9",), "nodes": ("n",)},
            LISTED,
            True,
            (False, "NothingMatches"),
            "device gpu-9, node n",
        ),
        ({"devices": ("gpu-1",)}, None, True, (False, "FabricNotListed"), "Connected"),
        ({"devices": ("gpu-1",)}, None, False, (False, "NoFabric"), "kubectl get fabrics"),
    ],
)
def test_the_condition_has_the_outcome_of_an_entry(spec, listed, has_fabric, expected, words):
    holds, reason, message = maintenance.judge(item(**spec).spec, listed, has_fabric=has_fabric)
    assert (holds, reason) == expected
    assert words in message


def test_the_message_names_a_few_entries_of_many():
    many = item(devices=tuple(f"gone-{number}" for number in range(1024)))
    _, _, message = maintenance.judge(many.spec, LISTED, has_fabric=True)
    assert "gone-4 and 1019 more" in message
    assert len(message) < 400


def test_a_condition_that_stays_keeps_its_time():
    first = maintenance.status(item(devices=("*",)), LISTED, has_fabric=True, now=NOW)
    again = item(devices=("*",))
    again = maintenances.Maintenance(metadata=again.metadata, spec=again.spec, status=first)
    later = NOW + datetime.timedelta(hours=1)
    assert maintenance.status(again, LISTED, has_fabric=True, now=later) == first


# --- the union ---


def test_the_maintenances_of_a_fabric_unite_and_end_one_by_one():
    index = maintenance.Index()
    first, second = (
        item("one", devices=("gpu-1", "gpu-2")),
        item("two", devices=("gpu-2",), nodes=("node-1",)),
    )
    index.change(None, first)
    index.change(None, second)
    index.change(None, item("three", fabric="other", devices=("*",)))
    assert index.scope("fab") == maintenances.Scope(
        devices=frozenset({"gpu-1", "gpu-2"}), nodes=frozenset({"node-1"})
    )
    index.change(first, None)
    assert index.scope("fab").has_device("gpu-2")
    assert not index.scope("fab").has_device("gpu-1")
    assert index.scope("other").has_device("anything")
    index.change(second, item("two", devices=("gpu-3",)))
    assert index.scope("fab") == maintenances.Scope(devices=frozenset({"gpu-3"}))
    assert not index.is_published(item("two", devices=("gpu-3",)))
    index.publish("fab", index.scope("fab"))
    assert index.is_published(item("two", devices=("gpu-3",)))
    assert not index.is_published(item("two", devices=("gpu-3", "gpu-4")))
    index.change(item("two"), None)
    assert index.scope("fab") == maintenances.Scope()
    assert index.names("fab") == ()


def test_all_readers_share_a_scope_until_its_maintenances_change():
    """A reader asks for each device; many names are united once."""
    index = maintenance.Index()
    index.change(None, item("one", devices=("gpu-1",)))
    shared = index.scope("fab")
    index.change(None, item("two", fabric="other", devices=("*",)))
    assert index.scope("fab") is shared
    index.change(None, item("three", devices=("gpu-2",)))
    assert index.scope("fab").devices == {"gpu-1", "gpu-2"}


# --- the controller ---


async def test_objects_unite_and_show_their_effect(served_world, until):
    async with served_world() as cluster:
        await scenes.begin(cluster.api, name="one", devices=["gpu-0"], reason="OPS-1")
        await scenes.begin(cluster.api, name="two", devices=["gpu-0", "gpu-9"], nodes=["node-1"])
        await scenes.begin(cluster.api, name="typo", devices=["gpu-9"])
        await scenes.begin(cluster.api, name="lost", fabric="gone", devices=["*"])

        async def reasons():
            names = ("one", "two", "typo", "lost")
            return [(await scenes.read_applied_condition(cluster.api, name)).get("reason") for name in names]

        await until(
            reasons, lambda reported: reported == ["Applied", "PartlyApplied", "NothingMatches", "NoFabric"]
        )
        marked = [("maintenance", "", "NoSchedule")]
        assert await cluster.marks("gpu-0") == marked
        await scenes.end(cluster.api, "one")
        await scenes.end(cluster.api, "typo")
        assert await cluster.marks("gpu-0") == marked
        await scenes.end(cluster.api, "two")
        await until(lambda: cluster.marks("gpu-0"), lambda taints: taints == [])


async def test_a_status_that_another_wrote_is_put_right(served_world, until):
    async with served_world() as cluster:
        await scenes.begin(cluster.api, devices=["gpu-0"])
        await until(
            lambda: scenes.read_applied_condition(cluster.api),
            lambda reported: reported.get("status") == "True",
        )
        wrong = {"conditions": [scenes_condition("False")]}
        await cluster.patch(kinds.MAINTENANCE, "work", {"status": wrong}, "status")
        await until(
            lambda: scenes.read_applied_condition(cluster.api),
            lambda reported: reported.get("status") == "True",
        )


def scenes_condition(status):
    stamp = "2026-01-01T00:00:00Z"
    return {
        "type": "Applied",
        "status": status,
        "reason": "Other",
        "message": "",
        "lastTransitionTime": stamp,
    }


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"fabric": "fab"}, "name devices or nodes"),
        ({"fabric": "fab", "devices": []}, "name devices or nodes"),
        ({"devices": ["*"]}, "fabric"),
        ({"fabric": "fab", "devices": ["*"], "reason": "a\nb"}, "reason"),
        ({"fabric": "fab", "devices": ["*"], "reason": "x" * 257}, "reason"),
        ({"fabric": "fab", "devices": [str(number) for number in range(1025)]}, "devices"),
    ],
)
async def test_meaningless_entries_are_refused_by_the_definition(controller_world, spec, words):
    async with controller_world() as cluster:
        with pytest.raises(errors.Invalid, match=words):
            await cluster.create(kinds.MAINTENANCE, "work", spec=spec)


async def test_the_fabric_of_a_maintenance_cannot_change(controller_world):
    async with controller_world() as cluster:
        await scenes.begin(cluster.api, devices=["*"])
        with pytest.raises(errors.Invalid, match="cannot change"):
            await cluster.patch(kinds.MAINTENANCE, "work", {"spec": {"fabric": "other"}})


async def test_the_controller_writes_the_status_alone(controller_world):
    async with controller_world() as cluster:
        await scenes.begin(cluster.api, devices=["*"])
        async with client.connecting(config.from_kubeconfig(cluster.path / "controller")) as own:
            for write in (
                own.delete(kinds.MAINTENANCE, "work"),
                own.patch(
                    kinds.MAINTENANCE,
                    "work",
                    {"spec": {"devices": ["gpu-0"]}},
                    content=client.Patch.MERGE,
                    into=dict,
                ),
            ):
                with pytest.raises(errors.Denied):
                    await write
