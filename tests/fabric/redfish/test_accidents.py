"""Accidents of a Redfish service, and what becomes of the operation, the connection and the adapter.

Whatever happens, no password or token is in a log record, an error or an operation: the fixture `trial` reads them all.
"""

import base64
import contextlib
import datetime
import itertools
import logging
import ssl
import traceback
from pathlib import Path

import pytest
import trustme
from tests.fabric.redfish.conftest import WITH_POOL, connection_body
from tests.scenes import waiting

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish.changing import ATTEMPTS
from drawbar.mocks.redfish import Fault, FaultKind, paths

USER, PASSWORD = "drawbar", "correct horse battery staple"
FORMS = {
    "a zone for each pair": {},
    "a zone for each host port": {"zones": "port", "product": "H3 Falcon"},
    "a zone for each host port, by actions": {"zones": "port", "product": "H3 Falcon", "actions": True},
    "a connection for each pair": {"method": "connections"},
    "a connection without an initiator": {"method": "connections", "initiators": False},
    "composition by arrays": {"method": "composition"},
    "composition by actions": {"method": "composition", "actions": True},
}
SLICES = {"method": "connections", "enclosures": WITH_POOL}
PATHS = {"composition": "/Systems", "connections": "/Connections"}
LISTINGS = {"composition": paths.SYSTEMS, "connections": paths.CONNECTIONS}
MUTATIONS = ("POST", "PATCH", "DELETE")


class Trial:
    """One service with a password, and adapters to it; remembers all that they answer."""

    def __init__(self, lab, texts):
        self._lab, self._texts = lab, texts
        self._numbers = itertools.count(1)
        self.services = []

    async def serve(self, **form):
        service = await self._lab.serve(username=USER, password=PASSWORD, **form)
        self.services.append(service)
        return service

    async def connect(self, service, **changes):
        return await self._lab.connect(service, **changes)

    async def serve_and_connect(self, form, **changes):
        service = await self.serve(**form)
        return service, await self.connect(service, **changes)

    async def begin(self, adapter, kind, device_id="gpu-1", host_id="h1"):
        inventory = await adapter.devices()
        name = next(device.id for device in inventory.devices if device.id.rpartition(".")[2] == device_id)
        operation = await getattr(adapter, kind)(getattr(self._lab, kind)(name, host_id))
        self._texts.append(repr(operation))
        return operation

    async def end(self, adapter, operation):
        async def read():
            return await adapter.operation(operation_id=operation.id)

        operation = await waiting.until(read, lambda read: read.done)
        self._texts.append(repr(operation))
        return operation

    async def attach(self, adapter, *names):
        return await self.end(adapter, await self.begin(adapter, "attach", *names))

    async def detach(self, adapter, *names):
        return await self.end(adapter, await self.begin(adapter, "detach", *names))

    async def error(self, kind, awaitable):
        with pytest.raises(kind) as caught:
            await awaitable
        error = caught.value
        self._texts += [str(error), repr(vars(error)), *traceback.format_exception(error)]
        return error


def mutations(service, *, after=0):
    return [
        entry for entry in service.requests[after:] if entry[0] in MUTATIONS and "Session" not in entry[1]
    ]


def logins(service):
    return service.requests.count(("POST", paths.SESSIONS))


def fault(form, kind, **changes):
    """Return an accident of the resources that the form changes."""
    path = PATHS.get(form.get("method"), "/Zones")
    return Fault(kind=kind, **{"path": path, **changes})


@pytest.fixture
async def trial(redfish_lab, caplog):
    caplog.set_level(logging.DEBUG)
    texts = []
    trial = Trial(redfish_lab, texts)
    yield trial
    await redfish_lab.close()
    for record in caplog.records:
        texts += [record.getMessage(), repr(vars(record))]
        if record.exc_info:
            texts += traceback.format_exception(*record.exc_info)
    basic = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    secrets = [PASSWORD, basic, *(token for service in trial.services for token in service.issued)]
    assert [text for text in texts if any(secret in text for secret in secrets)] == []


@pytest.fixture(params=FORMS.values(), ids=FORMS)
def form(request):
    return request.param


def test_every_accident_is_used():
    source = Path(__file__).read_text()
    assert [kind for kind in FaultKind if f"FaultKind.{kind.name}" not in source] == []


# --- what could have had an effect ---


@pytest.mark.parametrize("kind", [FaultKind.LOST_REPLY, FaultKind.HALF_BODY])
async def test_an_attach_whose_reply_is_lost_is_seen_and_never_sent_again(trial, form, kind):
    service, adapter = await trial.serve_and_connect(form)
    service.faults.add(fault(form, kind))
    assert (await trial.attach(adapter)).succeeded
    assert service.faults.met[kind] == 1
    assert service.connections()["gpu-1"] == ["h1"]
    assert len(mutations(service)) == 1


@pytest.mark.parametrize("kind", [FaultKind.LOST_REPLY, FaultKind.HALF_BODY])
async def test_a_detach_whose_reply_is_lost_is_seen_and_never_sent_again(trial, form, kind):
    service, adapter = await trial.serve_and_connect(form)
    await trial.attach(adapter)
    service.faults.add(fault(form, kind))
    before = len(service.requests)
    assert (await trial.detach(adapter)).succeeded
    assert service.faults.met[kind] == 1
    assert service.connections().get("gpu-1", []) == []
    assert len(mutations(service, after=before)) == 1


@pytest.mark.parametrize("kind", [FaultKind.LOST_REPLY, FaultKind.HALF_BODY])
async def test_a_slice_whose_reply_is_lost_is_seen_and_never_made_again(trial, kind):
    service, adapter = await trial.serve_and_connect(SLICES)
    service.faults.add(Fault(kind=kind, path="/MemoryChunks"))
    request = contract.CreateSliceRequest(request_id="c1", device_id="e1.pool-1", memory_bytes=1 << 30)
    operation = await trial.end(adapter, await adapter.create_slice(request))
    assert (operation.succeeded, operation.device.id) == (True, "e1.pool-1.1")
    assert service.faults.met[kind] == 1
    await adapter.close()
    adapter = await trial.connect(service)
    assert (await adapter.create_slice(request)).device.id == "e1.pool-1.1"
    assert (await adapter.operation(request_id="c1")).device.id == "e1.pool-1.1"
    assert len(mutations(service)) == 1
    service.faults.add(Fault(kind=kind, path="/MemoryChunks"))
    delete = contract.DeleteSliceRequest(request_id="x1", device_id="e1.pool-1.1")
    assert (await trial.end(adapter, await adapter.delete_slice(delete))).succeeded
    assert service.faults.met[kind] == 2
    assert service.tree.list_members("/redfish/v1/Chassis/e1/MemoryDomains/pool-1/MemoryChunks") == ()


async def test_a_slice_that_another_client_made_since_the_last_look_is_deleted(trial):
    service, adapter = await trial.serve_and_connect(SLICES)
    chunks = "/redfish/v1/Chassis/e1/MemoryDomains/pool-1/MemoryChunks"
    service._rules.change("POST", chunks, {"MemoryChunkSizeMiB": 1024, "AddressRangeType": "Volatile"})
    delete = contract.DeleteSliceRequest(request_id="x1", device_id="e1.pool-1.1")
    assert (await trial.end(adapter, await adapter.delete_slice(delete))).succeeded
    assert service.tree.list_members(chunks) == ()


async def test_a_creation_of_an_earlier_adapter_keeps_its_pool_busy(trial, impatient):
    service, former = await trial.serve_and_connect(SLICES)
    service.faults.add(Fault(kind=FaultKind.SLOW_TASK, path="/MemoryChunks"))
    request = contract.CreateSliceRequest(request_id="c1", device_id="e1.pool-1", memory_bytes=1 << 30)
    assert not (await former.create_slice(request)).done
    await waiting.eventually(lambda: mutations(service))
    await former.close()
    adapter = await trial.connect(service)
    error = await trial.error(errors.Aborted, adapter.create_slice(request))
    assert error.reason == errors.Reason.OPERATION_PENDING
    service.end_slow_tasks()

    async def try_create_slice():
        with contextlib.suppress(errors.Aborted):
            return await adapter.create_slice(request)

    made = await waiting.until(try_create_slice, lambda operation: operation is not None)
    assert (made.succeeded, made.device.id) == (True, "e1.pool-1.1")
    assert len(mutations(service)) == 1


async def test_a_stale_etag_is_answered_by_a_new_reading(trial, form):
    service, adapter = await trial.serve_and_connect(form)
    service.faults.add(fault(form, FaultKind.STALE_ETAG, times=ATTEMPTS - 1))
    assert (await trial.attach(adapter)).succeeded
    assert service.connections()["gpu-1"] == ["h1"]


async def test_a_resource_that_changes_for_ever_ends_the_operation(trial, form):
    service, adapter = await trial.serve_and_connect(form)
    service.faults.add(fault(form, FaultKind.STALE_ETAG, times=None))
    operation = await trial.attach(adapter)
    assert (operation.error.code, operation.error.reason) == (errors.Code.ABORTED, errors.Reason.STALE_ETAG)
    assert len(mutations(service)) == ATTEMPTS
    assert service.connections().get("gpu-1", []) == []


class _Meanwhile:
    """In place of accidents: another client's change, just before a request of the adapter.

    By default its first one that changes something; else its third listing of the connections, from which it plans: the
    first one is for the caller, and by the second one it judges the request.
    """

    def __init__(self, change, *, listing=""):
        self._change, self._listing = change, listing
        self._requests = 3 if listing else 1

    def next(self, method, path):
        if (method == "GET" and path == self._listing) if self._listing else method in MUTATIONS:
            self._requests -= 1
            if self._requests == 0:
                self._change()


@pytest.mark.parametrize("actions", [False, True], ids=["arrays", "actions"])
@pytest.mark.parametrize(
    ("form", "uri", "name", "target"),
    [
        ({"zones": "port", "product": "H3"}, f"{paths.ZONES}/h1", "Endpoints", paths.endpoint),
        ({"method": "composition"}, f"{paths.SYSTEMS}/h1", "ResourceBlocks", paths.block),
    ],
    ids=["zones", "composition"],
)
async def test_a_change_of_another_client_in_between_is_not_lost(trial, form, uri, name, target, actions):
    service, adapter = await trial.serve_and_connect(form | {"actions": actions})

    def change():
        links = [*service.tree[uri]["Links"][name], {"@odata.id": target("gpu-2")}]
        service._rules.change("PATCH", uri, {"Links": {name: links}})

    service.faults = _Meanwhile(change)
    assert (await trial.attach(adapter)).succeeded
    connections = service.connections()
    assert (connections["gpu-1"], connections["gpu-2"]) == (["h1"], ["h1"])


async def test_a_device_that_another_client_takes_in_between_stays_there(trial, form):
    service, adapter = await trial.serve_and_connect(form)

    def change():
        service._rules.change(*_other_change(service, form))

    service.faults = _Meanwhile(change)
    operation = await trial.attach(adapter)
    assert operation.error is not None
    assert service.connections()["gpu-1"] == ["h2"]


async def test_a_device_that_was_taken_before_the_plan_is_left_to_the_other_client(trial, form):
    service, adapter = await trial.serve_and_connect(form | {"exclusive": False, "events": False})
    listing = LISTINGS.get(form.get("method"), paths.ZONES)
    service.faults = _Meanwhile(lambda: service._rules.change(*_other_change(service, form)), listing=listing)
    operation = await trial.attach(adapter)
    assert operation.error.code is errors.Code.ABORTED
    assert service.connections()["gpu-1"] == ["h2"]
    assert mutations(service) == []


def _other_change(service, form):
    """Return the request of another client that attaches gpu-1 to h2."""
    ends = [{"@odata.id": paths.endpoint("h2")}, {"@odata.id": paths.endpoint("gpu-1")}]
    if form.get("method") == "composition":
        return (
            "PATCH",
            f"{paths.SYSTEMS}/h2",
            {"Links": {"ResourceBlocks": [{"@odata.id": paths.block("gpu-1")}]}},
        )
    if form.get("method") == "connections":
        return "POST", paths.CONNECTIONS, connection_body(service, "gpu-1", "h2")
    if form.get("zones") == "port":
        return "PATCH", f"{paths.ZONES}/h2", {"Links": {"Endpoints": ends}}
    return "POST", paths.ZONES, {"Links": {"Endpoints": ends}}


async def test_a_busy_service_refuses_an_attach_that_succeeds_later(trial, form):
    service, adapter = await trial.serve_and_connect(form)
    service.faults.add(fault(form, FaultKind.BUSY))
    operation = await trial.attach(adapter)
    assert (operation.error.code, operation.error.reason) == (errors.Code.UNAVAILABLE, "SERVICE_BUSY")
    assert operation.error.retryable
    assert not operation.side_effects_unknown
    assert (await trial.attach(adapter)).succeeded


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (FaultKind.HTML, "MALFORMED_ANSWER"),
        (FaultKind.HUGE, "LIMIT_EXCEEDED"),
        (FaultKind.DEEP, "MALFORMED_ANSWER"),
        (FaultKind.REDIRECT, "MALFORMED_ANSWER"),
    ],
)
async def test_an_answer_that_is_none_fails_the_attach_and_the_next_one_succeeds(trial, kind, reason):
    service, adapter = await trial.serve_and_connect({})
    service.faults.add(fault({}, kind))
    operation = await trial.attach(adapter)
    assert (operation.error.code, operation.error.reason) == (errors.Code.UNAVAILABLE, reason)
    assert operation.side_effects_unknown
    assert service.connections().get("gpu-1", []) == []
    assert (await trial.attach(adapter)).succeeded


async def test_a_stalled_attach_ends_at_the_deadline(trial, form):
    service, adapter = await trial.serve_and_connect(form, timeout_seconds=4)
    service.faults.add(fault(form, FaultKind.STALL))
    operation = await trial.attach(adapter)
    assert operation.error.code is errors.Code.DEADLINE_EXCEEDED
    assert operation.side_effects_unknown
    assert (await trial.attach(adapter)).succeeded


async def test_a_missing_privilege_names_the_one_that_is_needed(trial, form):
    service, adapter = await trial.serve_and_connect(form)
    service.faults.add(fault(form, FaultKind.FORBIDDEN))
    operation = await trial.attach(adapter)
    assert operation.error.code is errors.Code.PERMISSION_DENIED
    assert "ConfigureComponents" in operation.error.message
    assert service.connections().get("gpu-1", []) == []


# --- tasks ---


async def test_a_slow_task_is_an_operation_that_goes_on(trial, form, impatient):
    service, adapter = await trial.serve_and_connect(form)
    service.faults.add(fault(form, FaultKind.SLOW_TASK))
    operation = await trial.begin(adapter, "attach")

    async def read():
        return await adapter.operation(operation_id=operation.id)

    shown = await waiting.until(read, lambda shown: shown.percent == 10)
    assert not shown.done
    assert shown.retry_after_seconds > 0
    service.end_slow_tasks()
    assert (await trial.end(adapter, operation)).succeeded
    assert service.connections()["gpu-1"] == ["h1"]


async def test_a_task_of_an_earlier_adapter_keeps_its_device_busy_until_it_ends(trial, form, impatient):
    service, former = await trial.serve_and_connect(form)
    service.faults.add(fault(form, FaultKind.SLOW_TASK))
    await trial.begin(former, "attach")
    await former.close()
    adapter = await trial.connect(service)
    for host_id in ("h1", "h2"):
        error = await trial.error(errors.Aborted, trial.begin(adapter, "attach", "gpu-1", host_id))
        assert error.reason == errors.Reason.OPERATION_PENDING
    await service.wait_until_settled()

    async def try_attach():
        try:
            return await trial.begin(adapter, "attach")
        except errors.Aborted:
            return None

    assert (await waiting.eventually(try_attach)).succeeded
    assert service.connections()["gpu-1"] == ["h1"]
    assert len(mutations(service)) == 1


async def test_a_detach_of_an_earlier_adapter_keeps_its_device_busy_too(trial, form, impatient):
    service, former = await trial.serve_and_connect(form)
    await trial.attach(former)
    service.faults.add(fault(form, FaultKind.SLOW_TASK))
    await trial.begin(former, "detach")
    await former.close()
    adapter = await trial.connect(service)
    error = await trial.error(errors.Aborted, trial.begin(adapter, "detach"))
    assert error.reason == errors.Reason.OPERATION_PENDING
    assert (await trial.attach(adapter, "gpu-2", "h2")).succeeded


async def test_a_task_whose_monitor_was_in_a_lost_reply_is_waited_for(trial, form, impatient):
    service, adapter = await trial.serve_and_connect(form)
    service.faults.add(fault(form, FaultKind.LOST_TASK))
    operation = await trial.begin(adapter, "attach")
    assert not operation.done
    service.end_slow_tasks()
    assert (await trial.end(adapter, operation)).succeeded
    assert service.connections()["gpu-1"] == ["h1"]
    assert len(mutations(service)) == 1


@pytest.mark.parametrize(
    "quirk", ["pages", "refused-expand", "broken-expand", "ignored-expand", "foreign-links"]
)
async def test_a_running_task_is_found_in_an_odd_collection(trial, quirk, impatient):
    service, adapter = await trial.serve_and_connect({"quirks": (quirk,), "exclusive": False})
    for name in ("gpu-2", "disk-1"):
        service.faults.add(Fault(kind=FaultKind.FAILED_TASK))
        await trial.attach(adapter, name, "h2")
    service.faults.add(Fault(kind=FaultKind.LOST_TASK))
    operation = await trial.begin(adapter, "attach")
    await adapter.close()
    # The next controller has no record of the operation: only the tasks of the service show it.
    adapter = await trial.connect(service)
    error = await trial.error(errors.Aborted, trial.begin(adapter, "attach", "gpu-1", "h2"))
    assert error.reason == errors.Reason.OPERATION_PENDING
    await service.wait_until_settled()
    assert service.connections()["gpu-1"] == ["h1"]
    assert operation.device.id.endswith("gpu-1")


@pytest.mark.parametrize(
    "form", [form for form in FORMS.values() if form.get("actions")], ids=["zones", "blocks"]
)
@pytest.mark.parametrize(
    ("quirk", "parameters"),
    [("twice-quoted-etags", {}), ("unquoted-etags", {}), ("weak-etags", {"etags": "no"})],
    ids=["twice quoted", "unquoted", "weak"],
)
async def test_the_etag_of_an_action_is_treated_as_that_of_a_header(trial, form, quirk, parameters):
    _, adapter = await trial.serve_and_connect(form | {"quirks": (quirk,)}, parameters=parameters)
    assert (await trial.attach(adapter)).succeeded
    assert (await trial.detach(adapter)).succeeded


async def test_a_failed_task_fails_the_operation_with_its_reason(trial, form):
    service, adapter = await trial.serve_and_connect(form)
    service.faults.add(fault(form, FaultKind.FAILED_TASK))
    operation = await trial.attach(adapter)
    assert operation.error.code is errors.Code.UNAVAILABLE
    assert "The switch did not answer." in operation.error.message
    assert service.connections().get("gpu-1", []) == []
    assert (await trial.attach(adapter)).succeeded


async def test_a_monitor_that_is_busy_or_silent_for_a_while_is_asked_again(trial):
    service, adapter = await trial.serve_and_connect({"task_seconds": 0.05}, timeout_seconds=4)
    for kind in (FaultKind.BUSY, FaultKind.HTML, FaultKind.STALL):
        service.faults.add(Fault(kind=kind, methods=("GET",), path="/TaskMonitors"))
    assert (await trial.attach(adapter)).succeeded
    assert sum(service.faults.met.values()) == 3


async def test_a_service_that_restarts_forgets_the_task_and_the_attach_fails(trial, form, impatient):
    service, adapter = await trial.serve_and_connect(form)
    service.faults.add(fault(form, FaultKind.SLOW_TASK))
    operation = await trial.begin(adapter, "attach")
    service.restart()
    operation = await trial.end(adapter, operation)
    assert (operation.error.code, operation.error.reason) == (errors.Code.UNAVAILABLE, "NOT_SHOWN")
    assert logins(service) == 2
    assert (await trial.attach(adapter)).succeeded


# --- reading ---


@pytest.mark.parametrize(
    ("kind", "error", "reason"),
    [
        (FaultKind.LOST_REPLY, errors.Unavailable, "BROKEN_OFF"),
        (FaultKind.HALF_BODY, errors.Unavailable, "BROKEN_OFF"),
        (FaultKind.BUSY, errors.Unavailable, "SERVICE_BUSY"),
        (FaultKind.HTML, errors.Unavailable, "MALFORMED_ANSWER"),
        (FaultKind.HUGE, errors.Unavailable, "LIMIT_EXCEEDED"),
        (FaultKind.DEEP, errors.Unavailable, "MALFORMED_ANSWER"),
        (FaultKind.REDIRECT, errors.Unavailable, "MALFORMED_ANSWER"),
        (FaultKind.STALL, errors.DeadlineExceeded, "NO_ANSWER"),
        (FaultKind.FORBIDDEN, errors.PermissionDenied, "PERMISSION_DENIED"),
    ],
)
async def test_a_listing_that_fails_is_one_error_and_the_next_one_succeeds(trial, form, kind, error, reason):
    service, adapter = await trial.serve_and_connect(
        form, timeout_seconds=4 if kind is FaultKind.STALL else 20
    )
    # The library sends a GET again whose connection ended.
    service.faults.add(fault(form, kind, methods=("GET",), times=None))
    assert (await trial.error(error, adapter.devices())).reason == reason
    service.faults.clear()
    assert len((await adapter.devices()).devices) == 3


async def test_a_redirect_to_another_host_is_not_followed(trial):
    service, adapter = await trial.serve_and_connect({})
    elsewhere = await trial.serve()
    service.faults.add(Fault(kind=FaultKind.REDIRECT, methods=("GET",), times=100))
    await trial.error(errors.Unavailable, adapter.devices())
    assert elsewhere.requests == []


# --- credentials ---


async def test_an_expired_session_costs_one_login_and_the_change_is_made_once(trial, form):
    service, adapter = await trial.serve_and_connect(form)
    service.faults.add(fault(form, FaultKind.EXPIRED_SESSION))
    assert (await trial.attach(adapter)).succeeded
    assert len(mutations(service)) == 1
    assert logins(service) == 2


async def test_a_wrong_password_is_refused_with_the_remedy(trial):
    service = await trial.serve()
    credentials = contract.Credentials(username=USER, password=f"{PASSWORD} and more")
    error = await trial.error(errors.Unauthenticated, trial.connect(service, credentials=credentials))
    assert "Secret" in error.message
    assert service.issued == []


async def test_an_expired_password_is_refused_with_the_remedy(trial):
    service = await trial.serve()
    service.faults.add(Fault(kind=FaultKind.PASSWORD_CHANGE, path="/Sessions", times=None))
    error = await trial.error(errors.Unauthenticated, trial.connect(service))
    assert error.reason == "PASSWORD_CHANGE_REQUIRED"
    assert "new password" in error.message


async def test_a_limit_of_sessions_is_named_and_ends_with_a_session(trial):
    service, former = await trial.serve_and_connect({"max_sessions": 1})
    error = await trial.error(errors.Unavailable, trial.connect(service))
    assert error.reason == "SESSION_LIMIT"
    await former.close()
    await trial.connect(service)


async def test_a_service_without_sessions_gets_the_password_in_each_request(trial, form):
    service, adapter = await trial.serve_and_connect(form | {"quirks": ("basic-only",)})
    service.faults.add(fault(form, FaultKind.FORBIDDEN))
    assert (await trial.attach(adapter)).error.code is errors.Code.PERMISSION_DENIED
    assert (await trial.attach(adapter)).succeeded
    assert service.issued == []


# --- TLS ---


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


def _context(authority, *names, client_authority=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    if client_authority is not None:
        client_authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _credentials(authority=None, client=None):
    pair = (
        {}
        if client is None
        else {
            "certificate": client.cert_chain_pems[0].bytes().decode(),
            "key": client.private_key_pem.bytes().decode(),
        }
    )
    trusted = "" if authority is None else authority.cert_pem.bytes().decode()
    return contract.Credentials(username=USER, password=PASSWORD, authority=trusted, **pair)


@pytest.mark.sockets
async def test_a_service_of_the_authority_is_trusted(trial, authority):
    service = await trial.serve(tls=_context(authority, "127.0.0.1"))
    adapter = await trial.connect(service, credentials=_credentials(authority))
    assert (await trial.attach(adapter)).succeeded


@pytest.mark.sockets
@pytest.mark.parametrize("name", ["127.0.0.1", "manager.example"])
async def test_an_unknown_authority_and_a_wrong_name_are_refused_with_the_remedy(trial, authority, name):
    service = await trial.serve(tls=_context(authority, name))
    trusted = authority if name != "127.0.0.1" else trustme.CA()
    error = await trial.error(errors.Unavailable, trial.connect(service, credentials=_credentials(trusted)))
    assert error.reason == "CERTIFICATE_REFUSED"
    assert "authority" in error.message
    assert "tls.serverName" in error.message
    assert service.requests == []


@pytest.mark.sockets
@pytest.mark.parametrize("day", [-2, 2], ids=["expired", "early"])
async def test_a_certificate_out_of_date_is_to_be_renewed(trial, authority, day):
    begin = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=day)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    end = begin + datetime.timedelta(days=1)
    authority.issue_cert("127.0.0.1", not_before=begin, not_after=end).configure_cert(context)
    service = await trial.serve(tls=context)
    error = await trial.error(errors.Unavailable, trial.connect(service, credentials=_credentials(authority)))
    assert error.reason == "CERTIFICATE_REFUSED"
    assert "renew it at 127.0.0.1" in error.message
    assert "authority" not in error.message


@pytest.mark.sockets
async def test_the_certificates_server_name_can_be_configured(trial, authority):
    service = await trial.serve(tls=_context(authority, "manager.example"))
    tls = contract.Tls(server_name="manager.example")
    await trial.connect(service, credentials=_credentials(authority), tls=tls)


@pytest.mark.sockets
async def test_a_certificate_that_is_not_verified_may_be_any(trial, authority):
    service = await trial.serve(tls=_context(authority, "manager.example"))
    await trial.connect(service, credentials=_credentials(), tls=contract.Tls(verify=False))


@pytest.mark.sockets
async def test_a_service_without_tls_is_refused_with_the_remedy(trial, redfish_lab):
    service = await trial.serve()
    service.url = service.url.replace("http:", "https:")
    error = await trial.error(errors.Unavailable, trial.connect(service))
    assert error.reason == "TLS_REFUSED"


@pytest.mark.sockets
async def test_a_client_certificate_is_presented_and_a_missing_one_is_reported(trial, authority):
    service = await trial.serve(tls=_context(authority, "127.0.0.1", client_authority=authority))
    client = authority.issue_cert("drawbar.example")
    await trial.connect(service, credentials=_credentials(authority, client))
    error = await trial.error(errors.Unavailable, trial.connect(service, credentials=_credentials(authority)))
    assert error.reason == "TLS_REFUSED"
    assert "client certificate" in error.message


# --- events ---


async def _wait_until_connected(adapter, version, device_id, host_id):
    """Wait until a watch shows the device at the host."""
    async with adapter.watch(version) as events:
        async for event in events:
            if isinstance(event, contract.DeviceChanged) and event.device.id.endswith(device_id):
                connection = event.device.connection
                if connection is not None and connection.host_id == host_id:
                    return


async def test_an_event_shows_the_change_of_another_client_without_polling(trial, form):
    service, adapter = await trial.serve_and_connect(form, parameters={"pollSeconds": "9999"})
    # The adapter reads once more when the stream is open.
    listing = "GET", LISTINGS.get(form.get("method"), paths.ZONES)
    await waiting.eventually(lambda: service.followers and service.requests.count(listing) == 2)
    version = (await adapter.devices()).version
    service._rules.change(*_other_change(service, form))
    await _wait_until_connected(adapter, version, "gpu-1", "h2")


@pytest.mark.parametrize("events", [True, False], ids=["promised", "not offered"])
async def test_events_that_never_come_leave_the_change_to_polling(trial, form, events):
    service = await trial.serve(events=events, **form)
    service.faults.add(Fault(kind=FaultKind.STALL, methods=("GET",), path=paths.EVENTS, times=None))
    adapter = await trial.connect(service, parameters={"pollSeconds": "1"})
    version = (await adapter.devices()).version
    service._rules.change(*_other_change(service, form))
    await _wait_until_connected(adapter, version, "gpu-1", "h2")


async def test_a_watch_ends_when_the_service_cannot_be_read_and_begins_again(trial):
    service, adapter = await trial.serve_and_connect(
        {"events": False}, timeout_seconds=4, parameters={"pollSeconds": "1"}
    )
    version = (await adapter.devices()).version
    service.faults.add(Fault(kind=FaultKind.STALL, methods=("GET",), path=paths.ZONES, times=None))
    await trial.error(errors.Unavailable, _wait_until_connected(adapter, version, "gpu-1", "h2"))
    service.faults.clear()
    version = (await adapter.devices()).version
    service._rules.change(*_other_change(service, {}))
    await _wait_until_connected(adapter, version, "gpu-1", "h2")
