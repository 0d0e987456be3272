"""Values that anybody may write into JSON, given to every reader of text from outside: see `tests/cases/json`.

A reader returns a value or raises its own error, whatever it is given; where Go reads a value, ours read the same.
"""

import contextlib
import json
import zlib
from pathlib import Path

import pytest
from tests.driver.kube.test_client_faults import OK, raw_server

from drawbar.cdi import errors as cdi_errors
from drawbar.cdi import files as cdi_files
from drawbar.driver import errors
from drawbar.driver.api import attachments, claims, demands, fabrics, handles, healthpolicies, meta, slices
from drawbar.driver.api import parameters as driver_parameters
from drawbar.driver.cli.fabric import sources
from drawbar.driver.configuration import loader, schema
from drawbar.driver.healthmonitor import signals
from drawbar.driver.kube import config, decoding, kinds
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.node import claim_versions
from drawbar.driver.node import errors as node_errors
from drawbar.driver.node.classes import dfl
from drawbar.driver.node.preparation import cleaning, store
from drawbar.driver.node.uevents import sources as uevents
from drawbar.driver.webhook import review, settings
from drawbar.fabric import errors as fabric_errors
from drawbar.fabric.qemu import configuration as qemu

FOLDER = Path(__file__).parents[1] / "cases" / "json"
CASES = {path.stem: path.read_bytes() for path in sorted(FOLDER.glob("*.value"))}
EXPECTED = {name: json.loads((FOLDER / f"{name}.json").read_bytes()) for name in CASES}
every_case = pytest.mark.parametrize("name", CASES)


def claim(value, *, name=b"odd"):
    config = b'{"devices":{"config":[{"opaque":{"driver":"other","parameters":{"a":%s}}}]}}' % value
    metadata = b'{"name":"%s","namespace":"default","uid":"u-%s","resourceVersion":"7"}' % (name, name)
    return b'{"metadata":%s,"spec":%s,"status":{"allocation":%s}}' % (metadata, config, config)


def value_of(decoded):
    """Return the value in a claim that was read; "cut" for parameters that were left out or cut."""
    (entry,) = decoded.status.allocation.devices.config
    held = entry.opaque.parameters
    return "cut" if held is None else held["a"]


def test_every_case_states_its_outcome():
    assert len(CASES) > 50
    for expected in EXPECTED.values():
        assert expected["apiServer"] in ("keeps", "refuses", "breaks off")
        assert expected.keys() <= {"apiServer", "served", "read", "cut"}
        if expected["apiServer"] == "keeps":
            assert {"read", "cut"} & expected.keys(), "what an API server keeps is read"


@every_case
@pytest.mark.parametrize("into", [claims.ResourceClaim, demands.Claim])
def test_values_are_read_as_go_reads_them(name, into):
    expected = EXPECTED[name]
    for text in (CASES[name], expected.get("served", "").encode()):
        if not text:
            continue
        if not {"read", "cut"} & expected.keys():
            with pytest.raises(decoding.Malformed):
                decoding.decode(claim(text), into)
        elif "cut" in expected:
            decoding.decode(claim(text), into)
        else:
            # As text, so that 1 and 1.0 and True differ.
            assert repr(value_of(decoding.decode(claim(text), into))) == repr(expected["read"])


@every_case
async def test_all_other_objects_of_a_list_and_a_watch_are_read(name):
    items = [claim(b"1", name=b"before"), claim(CASES[name]), claim(b"1", name=b"after")]
    page = b'{"metadata":{"resourceVersion":"9"},"items":[%s]}' % b",".join(items)
    if EXPECTED[name]["apiServer"] == "refuses":
        # No API server has such an object. It ends the request, and no task.
        async with raw_server(OK, b"Content-Length: %d\r\n\r\n" % len(page), page) as api:
            try:
                await api.list_all(kinds.CLAIM, into=claims.ResourceClaim)
            except kube_errors.Unreachable:
                return
        return
    async with raw_server(OK, b"Content-Length: %d\r\n\r\n" % len(page), page) as api:
        listing = await api.list_all(kinds.CLAIM, into=claims.ResourceClaim)
    listed = [item.metadata.name for item in listing.items]
    left_out = [left.metadata.name for left in listing.unreadable]
    is_read = bool({"read", "cut"} & EXPECTED[name].keys())
    assert (listed, left_out) == (
        (["before", "odd", "after"], []) if is_read else (["before", "after"], ["odd"])
    )
    # A watch has a line for each object.
    lines = [b'{"type":"ADDED","object":%s}\n' % item.replace(b"\n", b" ") for item in items]
    async with raw_server(OK, b"Connection: close\r\n\r\n", *lines) as api:
        events = [
            event async for event in api.watch(kinds.CLAIM, into=claims.ResourceClaim, resource_version="1")
        ]
    assert [event.item.metadata.name for event in events if event.item is not None] == listed
    assert [event.unreadable.metadata.name for event in events if event.unreadable is not None] == left_out


@contextlib.contextmanager
def refusing(refusal):
    """Accept a refusal of this class by the reader, if its message can be encoded."""
    try:
        yield
    except refusal as error:
        str(error).encode()


def file_of(tmp_path, raw, name="file"):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return path


def read_webhook(raw, _folder):
    for driver in (b"drawbar.dev", b"other"):
        spec = b'{"devices":{"config":[{"opaque":{"driver":"%s","parameters":%s}}]}}' % (driver, raw)
        kind = b'{"group":"resource.k8s.io","version":"v1","kind":"ResourceClaim"}'
        request = b'{"uid":"u","kind":%s,"operation":"CREATE","object":{"metadata":{},"spec":%s}}' % (
            kind,
            spec,
        )
        body = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":%s}' % request
        answer = review.answer(review.read(body), "drawbar.dev")
        # Another driver's parameters are none of ours.
        assert driver == b"drawbar.dev" or answer["response"]["allowed"], answer


def read_parameters(raw, _folder):
    document = decoding.decode(raw, object)
    header = {"apiVersion": driver_parameters.API_VERSION, "kind": driver_parameters.KIND}
    for field in (
        "environment",
        "deviceFiles",
        "network",
        "memory",
        "fpga",
        "virtualFunctions",
        "drain",
        "x",
    ):
        for source in driver_parameters.Source:
            for held in (
                document,
                {"user": document, "mode": document, "A": document, "groups": [{"count": document}] * 9},
            ):
                with refusing(driver_parameters.Invalid):
                    driver_parameters.decode(header | {field: held}, source)


def read_signals(raw, _folder):
    alert = b'{"alerts":[{"status":"firing","labels":{"a":"b"}},{"status":"firing","labels":{"a":%s}}]}' % raw
    event = b'{"Events":[{"MessageId":"A.1.B","MessageArgs":[%s]},{"MessageId":%s}]}' % (raw, raw)
    command = b'{"signals":[{"labels":{"a":"b"}},{"labels":{"a":%s}}]}' % raw
    for source, body in (
        (healthpolicies.Source.ALERT, alert),
        (healthpolicies.Source.REDFISH, event),
        (healthpolicies.Source.COMMAND, command),
    ):
        for text in (body, raw):
            with refusing(signals.Unreadable):
                signals.read(source, text)


def read_objects(raw, _folder):
    for into in (
        fabrics.Fabric,
        attachments.DeviceAttachment,
        slices.ResourceSlice,
        healthpolicies.HealthPolicy,
    ):
        for text in (
            b'{"metadata":{"name":"a"},"spec":%s}' % raw,
            b'{"metadata":{"name":"a"},"spec":{"fabric":%s,"driver":"d","pool":%s},"status":{"conditions":%s}}'
            % (raw, raw, raw),
            b'{"metadata":%s}' % raw,
        ):
            with refusing(decoding.Malformed):
                decoding.decode(text, into)


def read_handle(raw, _folder):
    text = raw.decode(errors="replace")
    for data in (text, f'{{"apiVersion":"{handles.API_VERSION}","kind":"{handles.KIND}","devices":{text}}}'):
        with refusing(node_errors.NodeError):
            claim_versions.decode(data, "claim a/b")


def read_records(raw, folder):
    whole = b'{"version":1,"crc32":%d,"claim":%s}\n' % (zlib.crc32(raw), raw)
    for text in (raw, whole):
        with refusing(node_errors.CheckpointError):
            store._decode(file_of(folder, text), "u")
        file_of(folder, text, f"{cleaning.FOLDER}/gpu-0{cleaning.SUFFIX}")
        assert cleaning.Marks(folder).get("gpu-0").over


def read_cdi(raw, folder):
    for text in (raw, b'{"cdiVersion":"0.6.0","kind":"a.b/c","devices":%s}' % raw):
        with refusing(cdi_errors.CdiError):
            cdi_files.read(file_of(folder, text, "a.json"))
        file_of(folder, text, "b.yaml")
        cdi_files.find([folder], "a.b/c", names=frozenset({"0"}), own=frozenset(), common=frozenset())


def read_kubeconfig(raw, folder):
    for text in (raw, b'{"clusters":%s,"current-context":%s,"contexts":%s}' % (raw, raw, raw)):
        with refusing(errors.DrawbarError):
            config.from_kubeconfig(file_of(folder, text))


def read_fabric_file(raw, folder):
    for text in (raw, b'{"adapter":%s,"endpoint":"http://127.0.0.1:1","parameters":{"a":%s}}' % (raw, raw)):
        with refusing(errors.DrawbarError):
            sources.from_file(file_of(folder, text))


def read_settings(raw, folder):
    options = schema.options(settings.Settings)
    for text in (raw, b'{"driver":%s,"timeoutSeconds":%s}' % (raw, raw)):
        _, problems = loader.read_file(file_of(folder, text), options)
        assert all(problem.encode() for problem in problems)


def read_qemu(raw, _folder):
    for text in (raw, b'{"hosts":[%s],"devices":[{"id":%s}]}' % (raw, raw)):
        with refusing(fabric_errors.InvalidConfiguration):
            qemu.parse(text)


def read_bitstream(raw, _folder):
    metadata = b'{"version":1,"afu-image":{"interface-uuid":%s,"power":%s}}' % (raw, raw)
    content = dfl.GBS + len(metadata).to_bytes(dfl.LENGTH_BYTES, "little") + metadata + b"image"
    with refusing(node_errors.NodeError):
        dfl.parse(memoryview(content), "a.gbs")


def read_uevent(raw, _folder):
    for key in (b"SEQNUM", b"DEVPATH", b"SUBSYSTEM"):
        uevents.parse(b"add@/devices/a\0ACTION=add\0DEVPATH=/devices/a\0%s=%s\0" % (key, raw))


def read_time(raw, _folder):
    text = raw.decode(errors="replace")
    for written in (text, f"{text}-01-01T00:00:00Z", f"2026-01-01T00:00:00.{text}Z"):
        meta.moment(written)


READERS = {
    function.__name__.removeprefix("read_"): function
    for function in (
        read_webhook,
        read_parameters,
        read_signals,
        read_objects,
        read_handle,
        read_records,
        read_cdi,
        read_kubeconfig,
        read_fabric_file,
        read_settings,
        read_qemu,
        read_bitstream,
        read_uevent,
        read_time,
    )
}


@every_case
@pytest.mark.parametrize("reader", READERS)
def test_no_reader_raises_anything_but_its_own_error(name, reader, tmp_path):
    try:
        READERS[reader](CASES[name], tmp_path)
    except (decoding.Malformed, review.Unreadable):
        # No API server sends it, or has it in an object.
        assert EXPECTED[name]["apiServer"] != "keeps"
