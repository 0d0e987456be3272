"""Server-side apply, the patches and ownership as pure functions."""

from typing import Any

import pytest

from drawbar.mocks.apiserver import apply, fieldsets, ownership, patches, schemas

Json = dict[str, Any]
SCHEMA = schemas.record(metadata=schemas.METADATA, status=schemas.record(conditions=schemas.CONDITIONS))


def run(
    live: Json, config: Json, owners: ownership.Owners = (), *, name: str = "a", force: bool = False
) -> Any:
    manager = ownership.Manager(name=name, operation="Apply")
    return apply.apply(live, config, SCHEMA, owners, manager=manager, api_version="v1", now="t", force=force)


def test_an_item_that_its_manager_leaves_out_is_removed_and_the_other_stays() -> None:
    live, owners = run({}, {"status": {"conditions": [{"type": "A"}, {"type": "B"}]}})
    live, owners = run(live, {"status": {"conditions": [{"type": "B"}]}}, owners)
    assert live == {"status": {"conditions": [{"type": "B"}]}}


def test_a_left_out_item_stays_while_another_manager_owns_something_in_it() -> None:
    live, owners = run({}, {"status": {"conditions": [{"type": "A", "status": "True"}]}})
    live, owners = run(live, {"status": {"conditions": [{"type": "A", "reason": "R"}]}}, owners, name="b")
    live, owners = run(live, {"spec": {"x": 1}}, owners)
    assert live["status"]["conditions"] == [{"type": "A", "reason": "R"}]


def test_several_conflicts_are_all_named() -> None:
    live, owners = run({}, {"spec": {"x": 1, "y": 1}})
    with pytest.raises(
        apply.ConflictError, match=r"2 conflicts: conflicts with \"a\":\n- .spec.x\n- .spec.y"
    ):
        run(live, {"spec": {"x": 2, "y": 2}}, owners, name="b")


def test_an_item_without_any_key_is_refused() -> None:
    with pytest.raises(fieldsets.KeylessItemError, match="omits all keys"):
        run({}, {"status": {"conditions": [{"status": "True"}]}})


def test_an_optional_key_may_be_left_out() -> None:
    item = {"driver": "d", "pool": "p", "device": "x"}
    element = fieldsets.item_element(schemas.keyed_list("driver", "device", "pool", "shareID"), item)
    assert element == 'k:{"device":"x","driver":"d","pool":"p"}'


def test_a_closed_schema_refuses_unknown_fields() -> None:
    closed = schemas.Schema(fields={"spec": schemas.Schema(fields={"x": schemas.ATOMIC}, closed=True)})
    with pytest.raises(apply.UndeclaredFieldError, match=r"\.spec\.y"):
        apply.check_declared({"spec": {"y": 1}}, closed)


def test_an_update_owns_changed_fields_and_drops_removed_ones() -> None:
    live, owners = run({}, {"spec": {"x": 1, "y": 1, "z": 1}})
    editor = ownership.Manager(name="editor", operation="Update")
    new = {"spec": {"x": 2, "z": 1}}
    after = ownership.after_update(owners, live, new, SCHEMA, manager=editor, api_version="v1", now="t")
    assert {o.manager.name: o.fields for o in after} == {
        "a": {("f:spec", "f:z")},
        "editor": {("f:spec", "f:x")},
    }


def test_field_sets_survive_their_wire_form() -> None:
    value = {"metadata": {"finalizers": ["f"]}, "status": {"conditions": [{"type": "A", "status": "True"}]}}
    paths = fieldsets.from_value(value, SCHEMA)
    assert fieldsets.decode(fieldsets.encode(paths)) == paths


@pytest.mark.parametrize(
    ("document", "operations", "expected"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ({"a/b": 1}, [{"op": "replace", "path": "/a~1b", "value": 2}], {"a/b": 2}),
        ({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}),
        ({"a": 1}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": 1, "b": 1}),
    ],
    ids=["add", "append", "remove", "escaped", "move", "copy"],
)
def test_json_patches_carry_out_their_operations(document: Any, operations: Any, expected: Any) -> None:
    assert patches.json_patch(document, operations) == expected


@pytest.mark.parametrize(
    "operations",
    [
        {"op": "add"},
        [{"op": "add"}],
        [{"op": "add", "path": "/x"}],
        [{"op": "test", "path": "/a", "value": 9}],
        [{"op": "remove", "path": "/missing"}],
        [{"op": "add", "path": "/list/7", "value": 1}],
        [{"op": "frob", "path": "/a", "value": 1}],
    ],
)
def test_json_patches_that_do_not_fit_are_refused_whole(operations: Any) -> None:
    with pytest.raises(patches.PatchError):
        patches.json_patch({"a": 1, "list": []}, operations)


def test_a_strategic_merge_replaces_a_list_without_a_merge_key() -> None:
    claim = {"status": {"devices": [{"driver": "d", "pool": "p", "device": "x"}]}}
    other = {"status": {"devices": [{"driver": "e", "pool": "p", "device": "x"}]}}
    assert patches.strategic_merge(claim, other, schemas.CLAIM) == other
