"""Tasks, sessions and refusals in odd forms: the outcome is known, and the service's words are told."""

import json

import pytest
from tests.scenes.redfish_servers import ROOT, adapting, link, serving
from tests.scenes.redfish_services import ZONES, answer, attach, service

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish.adapter import RedfishAdapter

SESSIONS = f"{ROOT}/SessionService/Sessions"
MONITOR = f"{ROOT}/TaskService/TaskMonitors/1"


# --- tasks ---


@pytest.mark.parametrize(
    ("begun", "headers", "shown"),
    [
        ({"Id": "1", "TaskState": "New", "TaskMonitor": MONITOR}, {}, {}),
        ({}, {"Location": MONITOR}, {"TaskState": "completed"}),
        ({}, {"Location": MONITOR.removeprefix("/")}, {"TaskState": "COMPLETED", "PercentComplete": "100"}),
        ({}, {"Location": "../../TaskService/TaskMonitors/1"}, {"TaskState": "Completed"}),
    ],
    ids=["monitor in the body", "lower case", "without a slash", "relative"],
)
async def test_a_task_is_followed_to_its_end(begun, headers, shown):
    made = service()

    def hook(method, path, body):
        if (method, path) == ("POST", ZONES):
            made._default(method, path, body)
            return answer(begun, 202, **headers)
        return answer(shown) if path == MONITOR else None

    made.hook = hook
    async with adapting(made) as adapter:
        assert (await adapter.attach(attach())).succeeded
    assert made.reads.count(MONITOR) == 1


# --- sessions ---


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({"@odata.id": f"{SESSIONS}/7"}, {}),
        ({"Id": "7", "Name": "Session"}, {}),
        ({}, {"Location": f"https://10.1.2.3{SESSIONS}/7/"}),
        ({"Id": "other"}, {"Location": f"{SESSIONS}/7"}),
        ({"Name": "Session"}, {"Location": "Sessions/7"}),
        ({"Id": "7"}, {"Location": "7"}),
        ({"Id": "7"}, {"Location": "/SessionService/Sessions/7"}),
        ({"Id": "7"}, {"Location": "https://10.1.2.3/sessions/7"}),
        ({"@odata.id": f"{SESSIONS}/7"}, {"Location": "http://["}),
    ],
    ids=[
        "URI in the body",
        "id in the body",
        "another authority",
        "Location first",
        "relative",
        "number",
        "another place",
        "elsewhere",
        "no URI",
    ],
)
async def test_no_session_is_left_behind(body, headers):
    made = service()
    made.tree[ROOT]["Links"] = {"Sessions": link(SESSIONS)}
    made.tree[f"{SESSIONS}/7"] = {"@odata.id": f"{SESSIONS}/7"}
    made.collect(SESSIONS, "7")
    made.hook = lambda method, path, _: (
        answer(body, 201, X_Auth_Token="token", **headers) if (method, path) == ("POST", SESSIONS) else None
    )
    async with serving(made):
        config = contract.AdapterConfig(
            name="fab",
            endpoint=made.url,
            timeout_seconds=60,
            credentials=contract.Credentials(username="user", password="a password"),
        )
        async with await RedfishAdapter.connect(config) as adapter:
            await adapter.devices()
    assert f"{SESSIONS}/7" not in made.tree


# --- refusals ---

WITH_ARGUMENTS = {"MessageId": "Acme.9.9.Mystery", "Message": "%1 is not %2", "MessageArgs": ["Zone", 3]}

ID_ALONE = {
    "code": "iLO.0.10.ExtendedInfo",
    "message": "See @Message.ExtendedInfo for more information.",
    "@Message.ExtendedInfo": [{"MessageId": "iLO.2.14.PortLocked"}],
}
IN_USE = {"MessageId": "Base.1.8.ResourceInUse", "Message": "the port is in use"}


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (b'"no more lanes"', errors.InvalidArgument, '"no more lanes"'),
        (b"<html><TITLE lang=en>\n Lanes &amp; ports\n</TITLE>", errors.InvalidArgument, '"Lanes & ports"'),
        (b'[{"Message": "a reason"}]', errors.InvalidArgument, '"a reason"'),
        (b'{"errors": [{"message": "a reason"}]}', errors.InvalidArgument, '"a reason"'),
        (b'{"error": "a reason"}', errors.InvalidArgument, '"a reason"'),
        (
            b'{"error": {"message": {"lang": "en", "value": "a reason"}}}',
            errors.InvalidArgument,
            '"a reason"',
        ),
        (b'{"title": "Bad", "detail": "a reason"}', errors.InvalidArgument, '"a reason"'),
        (b'{"title": "Bad", "errors": {"Links": ["a reason"]}}', errors.InvalidArgument, '"a reason"'),
        (b'{"errors": ["a reason", "another"]}', errors.InvalidArgument, '"a reason"'),
        (
            b'{"error": "invalid_request", "error_description": "a reason"}',
            errors.InvalidArgument,
            '"a reason"',
        ),
        (b'{"code": 7, "errorMessage": "a reason"}', errors.InvalidArgument, '"a reason"'),
        (b'{"error": {"error": {"msg": "a reason"}}}', errors.InvalidArgument, '"a reason"'),
        (b'{"error": {"@Message.ExtendedInfo": ["a reason"]}}', errors.InvalidArgument, '"a reason"'),
        (
            json.dumps({"error": ID_ALONE}).encode(),
            errors.InvalidArgument,
            "iLO.2.14.PortLocked",
        ),
        (b"<?xml version='1.0'?><error><text>a &amp; b</text></error>", errors.InvalidArgument, '"a & b"'),
        (b"<html><h1>Bad</h1><p>a reason</p></html>", errors.InvalidArgument, '"Bad a reason"'),
        (b'{"message": "a\\u001b[31m\\r\\nreason\\u0000"}', errors.InvalidArgument, '"a [31m reason"'),
        (
            json.dumps({"error": {"@Message.ExtendedInfo": IN_USE}}).encode(),
            errors.Unavailable,
            "the port is in use",
        ),
        (
            json.dumps({"error": {"code": IN_USE["MessageId"], "message": "the port is in use"}}).encode(),
            errors.Unavailable,
            "the port is in use",
        ),
        (
            json.dumps({"error": {"@Message.ExtendedInfo": [WITH_ARGUMENTS]}}).encode(),
            errors.InvalidArgument,
            "Zone is not 3",
        ),
    ],
    ids=[
        "JSON string",
        "page",
        "array",
        "errors",
        "error as text",
        "OData 3",
        "problem details",
        "validation",
        "texts",
        "OAuth",
        "errorMessage",
        "nested",
        "extended texts",
        "id alone",
        "XML",
        "page without a title",
        "control characters",
        "object in place of an array",
        "code alone",
        "arguments",
    ],
)
async def test_the_services_words_are_shown_in_each_form(content, kind, words):
    made = service()
    made.hook = lambda method, path, _: answer(content, 400) if (method, path) == ("POST", ZONES) else None
    async with adapting(made) as adapter:
        error = (await adapter.attach(attach())).error
    assert error.code == kind.code
    assert words in error.message


# --- tasks of other forms ---


@pytest.mark.parametrize("status", [200, 201, 202])
@pytest.mark.parametrize(
    "shown", [{"TaskState": "Canceled"}, {"TaskState": "Done", "EndTime": "2026-01-01T00:00:00Z"}]
)
async def test_the_fabric_tells_the_outcome_of_a_task_with_an_end_of_its_own(status, shown):
    made = service()
    bodies = []

    def hook(method, path, body):
        if (method, path) == ("POST", ZONES):
            bodies.append(body)
            return answer({"@odata.id": MONITOR, "TaskState": "Running"}, status)
        if path == MONITOR and made.reads.count(MONITOR) == 2:
            made._default("POST", ZONES, bodies[0])
        return (
            answer(shown if made.reads.count(MONITOR) > 1 else {"TaskState": "Running"})
            if path == MONITOR
            else None
        )

    made.hook = hook
    async with adapting(made) as adapter:
        assert (await adapter.attach(attach())).succeeded
    assert len(bodies) == 1


@pytest.mark.parametrize(
    "shown",
    [
        {"TaskState": "Completed", "TaskStatus": "Critical", "Messages": [{"Message": "no lanes"}]},
        {"TaskState": "Failed", "EndTime": "2026-01-01T00:00:00Z", "Messages": [{"Message": "no lanes"}]},
        {"error": {"message": "no lanes"}},
    ],
    ids=["critical", "vendor's", "refusal"],
)
async def test_the_reason_of_a_task_without_effect_is_told(shown):
    made = service()

    def hook(method, path, _):
        if (method, path) == ("POST", ZONES):
            return answer({}, 202, Location=MONITOR)
        return answer(shown) if path == MONITOR else None

    made.hook = hook
    async with adapting(made) as adapter:
        assert "no lanes" in (await adapter.attach(attach())).error.message


# --- accepted changes ---

FULL = {"MessageId": "Fabric.1.0.ZoneFull", "Message": "the zone is full"}


@pytest.mark.parametrize(
    "body",
    [
        {"@Message.ExtendedInfo": [FULL | {"MessageSeverity": "Critical"}]},
        {"Id": "x", "@Message.ExtendedInfo": [FULL | {"Severity": "Warning"}]},
        {"Id": "x", "Links@Message.ExtendedInfo": [FULL]},
    ],
    ids=["critical", "warning", "of a property"],
)
@pytest.mark.parametrize("is_made", [True, False])
async def test_a_message_beside_a_success_is_told_if_the_fabric_shows_no_effect(body, is_made):
    made = service()

    def hook(method, path, content):
        if (method, path) != ("POST", ZONES):
            return None
        if is_made:
            made._default(method, path, content)
        return answer(body)

    made.hook = hook
    async with adapting(made) as adapter:
        operation = await adapter.attach(attach())
    assert operation.succeeded == is_made
    assert is_made or "the zone is full" in operation.error.message


@pytest.mark.parametrize(
    "entry",
    [
        {"MessageId": "Base.1.8.Success", "MessageSeverity": "Warning"},
        {"MessageId": "IDRAC.2.8.SYS413", "Severity": "OK"},
        FULL,
    ],
)
async def test_a_harmless_message_beside_a_success_ends_no_wait_for_the_effect(entry):
    made, late = service(), []

    def hook(method, path, content):
        if (method, path) == ("POST", ZONES):
            late.extend([content, None, None])
            return answer({"@Message.ExtendedInfo": [entry]})
        if (method, path) == ("GET", ZONES) and late and late.pop() is not None:
            made._default("POST", ZONES, made.changes[-1][2])
        return None

    made.hook = hook
    async with adapting(made) as adapter:
        assert (await adapter.attach(attach())).succeeded
    assert [method for method, *_ in made.changes] == ["POST"]


async def test_an_account_that_may_only_change_its_password_is_told_so():
    made = service()
    made.tree[ROOT]["Links"] = {"Sessions": link(SESSIONS)}
    refused = {"error": {"@Message.ExtendedInfo": [{"MessageId": "Base.1.8.PasswordChangeRequired"}]}}

    def hook(method, path, _):
        if (method, path) == ("POST", SESSIONS):
            return answer({"Id": "7"}, 201, X_Auth_Token="a token")
        return None if path == ROOT else answer(refused, 403)

    made.hook = hook
    async with serving(made):
        config = contract.AdapterConfig(
            name="fab",
            endpoint=made.url,
            timeout_seconds=60,
            credentials=contract.Credentials(username="user", password="a password"),
        )
        with pytest.raises(errors.Unauthenticated, match="give the account a new password"):
            await RedfishAdapter.connect(config)
    assert [path for _, path, _ in made.changes].count(SESSIONS) == 1
