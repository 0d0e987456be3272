import json

import pytest
from tests.scenes import redfish_trees
from tests.scenes.redfish_trees import ROOT, collection, link, links

from drawbar.fabric.redfish import tasks
from drawbar.fabric.redfish.documents import Document

TASKS = f"{ROOT}/TaskService/Tasks"
ENDPOINTS = {"Links": {"Endpoints": links("/e/1", "/e/2/")}}


def _task(body=None, state="Running", target="/z/1/", name="1"):
    payload = {"HttpOperation": "PATCH", "TargetUri": target, "JsonBody": body}
    return {"@odata.id": f"{TASKS}/{name}", "Id": name, "TaskState": state, "Payload": payload}


@pytest.mark.parametrize(
    ("task", "uris"),
    [
        (_task(json.dumps(ENDPOINTS)), {"/z/1", "/e/1", "/e/2"}),
        (_task(json.dumps(ENDPOINTS).replace("/", "\\/")), {"/z/1", "/e/1", "/e/2"}),
        (_task('{"ResourceBlock":{"@odata.id":"/b/1"}}', state="New"), {"/z/1", "/b/1"}),
        (_task(None, state="Suspended"), {"/z/1"}),
        (_task(""), {"/z/1"}),
        (_task("{"), {"/z/1"}),
        (_task("[" * 100_000), {"/z/1"}),
        (_task("[[[[[[[[[" + json.dumps(link("/deep")) + "]]]]]]]]]"), {"/z/1"}),
        (_task('"\\ud800"'), {"/z/1"}),
        (_task({"Links": {}}), {"/z/1"}),
    ],
)
def test_a_running_task_names_its_changed_resources(task, uris):
    assert tasks.from_task(Document.from_json(task)) == tasks.Change(
        task_uri=f"{TASKS}/1", uris=frozenset(uris)
    )


@pytest.mark.parametrize(
    "task",
    [
        _task(state="Completed"),
        _task(state="Exception"),
        _task(state="Cancelled"),
        _task(target=None),
        _task(target=""),
        {"@odata.id": f"{TASKS}/1", "TaskState": "Running"},
        {"@odata.id": f"{TASKS}/1", "TaskState": "Running", "Payload": []},
    ],
)
def test_a_task_that_has_ended_or_hides_its_request_is_none(task):
    assert tasks.from_task(Document.from_json(task)) is None


@pytest.mark.parametrize(
    "resources",
    [
        [{"@odata.id": ROOT}],
        [{"@odata.id": ROOT, "Tasks": link(f"{ROOT}/TaskService")}],
        [{"@odata.id": ROOT, "Tasks": link(f"{ROOT}/TaskService")}, {"@odata.id": f"{ROOT}/TaskService"}],
    ],
    ids=["no link", "nothing there", "no collection"],
)
async def test_a_service_without_tasks_has_no_changes(resources):
    assert await tasks.changes(redfish_trees.Tree(*resources)) == ()


async def test_the_newest_tasks_are_read():
    names = [str(number) for number in range(tasks.TASKS + 5)]
    tree = redfish_trees.Tree(
        {"@odata.id": ROOT, "Tasks": link(f"{ROOT}/TaskService")},
        {"@odata.id": f"{ROOT}/TaskService", "Tasks": link(TASKS)},
        collection(TASKS, *names),
        *(_task(state="Completed" if name == "30" else "Running", name=name) for name in names),
    )
    listed = [change.task_uri.rpartition("/")[2] for change in await tasks.changes(tree)]
    assert listed == [name for name in names[5:] if name != "30"]
