"""Every parser of text from outside, with an input that it takes and the errors that it may answer others with."""

import contextlib
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from google.protobuf.message import DecodeError

from drawbar.cdi import errors as cdi_errors
from drawbar.cdi import files as cdi_files
from drawbar.driver import errors
from drawbar.driver.api import (
    attachments,
    claims,
    core,
    demands,
    fabrics,
    handles,
    healthpolicies,
    meta,
    slices,
)
from drawbar.driver.api import parameters as driver_parameters
from drawbar.driver.cli.doctor.plans import fabrics as fabric_findings
from drawbar.driver.cli.fabric import sources
from drawbar.driver.cli.ui import device_rows
from drawbar.driver.cli.ui import model as ui_model
from drawbar.driver.controller import hosts
from drawbar.driver.controller.pools import devices as pool_devices
from drawbar.driver.healthmonitor import signals
from drawbar.driver.kube import decoding, kubeconfig, kubeconfig_files
from drawbar.driver.node import claim_versions
from drawbar.driver.node import errors as node_errors
from drawbar.driver.node.classes import dfl
from drawbar.driver.node.inventory import pci
from drawbar.driver.node.preparation import records, store
from drawbar.driver.node.uevents import sources as uevents
from drawbar.driver.slices import encoding
from drawbar.driver.webhook import review
from drawbar.fabric import contract
from drawbar.fabric import errors as fabric_errors
from drawbar.fabric.grpc import conversion
from drawbar.fabric.qemu import configuration as qemu
from drawbar.fabric.redfish import documents, entities, messages, tasks
from drawbar.proto.fabric.v1alpha1 import fabric_pb2

DRIVER = "drawbar.dev"
TOKENS = (
    *(
        b"null",
        b"true",
        b"[]",
        b"{}",
        b"-1",
        b"1e308",
        b"NaN",
        b"0x",
        b"18446744073709551616",
        b"9" * 400,
        b"1" * 5000,
    ),
    *(
        b'"' + b"A" * 300 + b'"',
        b"[" * 2000,
        b'{"a":' * 1500,
        b'"\\ud800"',
        b"\xed\xa0\x80",
        b"\xff\xfe",
        b"\x00",
        b"\n",
    ),
    *(
        b"../../",
        b"%00",
        b"\x1b[2J",
        b"\xe2\x80\xae",
        b"&a [*a]",
        b"=",
        b"0001-01-01T00:00:00+23:59",
        b"9999-12-31T23:59:60Z",
    ),
)
"""Fragments that have misled a parser before, in some program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A parser.

    Attributes:
        parse: reads one input; may use the folder for files.
        seeds: inputs that it takes.
        refusals: the errors that it may raise.
    """

    parse: Callable[[bytes, Path], object]
    seeds: tuple[bytes, ...]
    refusals: tuple[type[Exception], ...] = ()

    def judge(self, raw: bytes, folder: Path) -> None:
        """Parse the input; a refusal is well, if its message can be written."""
        try:
            self.parse(raw, folder)
        except self.refusals as error:
            str(error).encode()


def _file(folder: Path, raw: bytes, name: str) -> Path:
    path = folder / name
    path.write_bytes(raw)
    return path


def _json(content: object) -> bytes:
    return json.dumps(content).encode()


# --- objects of the API server ---

_METADATA = {
    "name": "a",
    "namespace": "b",
    "uid": "u",
    "resourceVersion": "1",
    "creationTimestamp": "2026-01-01T00:00:00Z",
}
_PARAMETERS = {
    "apiVersion": driver_parameters.API_VERSION,
    "kind": driver_parameters.KIND,
    "environment": {"A": "b"},
    "deviceFiles": {"user": 1, "mode": "0660"},
    "network": {"interfacePrefix": "data"},
    "memory": {"mode": "devdax"},
    "fpga": {"bitstream": "a.bit", "sha256": "0" * 64},
}
_CONFIG = [{"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": _PARAMETERS}}]
_RESULT = {
    "request": "r",
    "driver": DRIVER,
    "pool": "p",
    "device": "d",
    "consumedCapacity": {"memory": "4Gi"},
}
_CLAIM = {
    "metadata": _METADATA,
    "spec": {
        "devices": {
            "requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}}],
            "config": _CONFIG,
        }
    },
    "status": {
        "allocation": {
            "allocationTimestamp": "2026-01-01T00:00:00Z",
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
                ]
            },
            "devices": {"results": [_RESULT], "config": _CONFIG},
        },
        "devices": [
            {"driver": DRIVER, "pool": "p", "device": "d", "conditions": [{"type": "x", "status": "True"}]}
        ],
    },
}
_ATTACHMENT = {
    "metadata": _METADATA,
    "spec": {
        "fabric": "f",
        "deviceID": "d",
        "driver": DRIVER,
        "pool": "p",
        "device": "d",
        "nodeName": "n",
        "hostID": "h",
        "identity": {"deviceClass": "gpu"},
    },
    "status": {
        "node": {"pciAddress": "0000:01:00.0", "findings": [{"name": "n", "effect": "None"}]},
        "phase": "Attached",
    },
}
_FABRIC = {
    "metadata": _METADATA,
    "spec": {"adapter": "grpc", "endpoint": "unix:/x", "policy": {"probationSeconds": 60}},
}
_SLICE = {
    "metadata": _METADATA,
    "spec": {
        "driver": DRIVER,
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "d", "attributes": {"a": {"int": 1}}, "capacity": {"m": {"value": "1Gi"}}}],
    },
}
_NODE = {
    "metadata": _METADATA,
    "status": {"nodeInfo": {"systemUUID": "u"}, "conditions": [{"type": "Ready", "status": "True"}]},
}


def _show(item: object) -> None:
    """Build the page's rows, as `status` and `ui` do."""
    rows = device_rows.Rows(DRIVER)
    rows.change(None, item)
    msgspec.json.encode((rows.current(), rows.list_pending()))


def _read_slice(item: slices.ResourceSlice) -> None:
    _show(item)
    for current in slices.newest([item]):
        for taints in encoding.decode([current]).values():
            encoding.keeps_away(taints)
        encoding.find_lost_fields(current.spec, item.spec)
        for device in current.spec.devices:
            encoding.taints_of([current], device.name)
            for attribute in device.attributes.values():
                str(attribute.value)
        slices.document(current)


def _judge_fabric(fabric: fabrics.Fabric) -> None:
    msgspec.json.encode((ui_model.list_fabrics([fabric], ()), tuple(fabric_findings.judge_all(fabric))))
    hosts.to_status(hosts.from_status(fabric))
    fabric.spec.offer.has_device("d", "gpu", "m", "e")


_OBJECTS: dict[str, tuple[type, object, Callable[[Any], object]]] = {
    "claim": (claims.ResourceClaim, _CLAIM, _show),
    "asked-claim": (demands.Claim, _CLAIM, lambda claim: claim),
    "attachment": (attachments.DeviceAttachment, _ATTACHMENT, _show),
    "fabric": (fabrics.Fabric, _FABRIC, _judge_fabric),
    "slice": (slices.ResourceSlice, _SLICE, _read_slice),
    "node-object": (core.Node, _NODE, hosts.shape),
    "secret": (core.Secret, {"metadata": _METADATA, "data": {"token": "YQ=="}}, lambda secret: secret),
}
"""For each kind: its type, an example, and the code that reads a decoded object."""


def _object(into: type, example: object, use: Callable[[Any], object]) -> Target:
    return Target(
        parse=lambda raw, _: use(decoding.decode(raw, into)),
        seeds=(_json(example),),
        refusals=(msgspec.MsgspecError,),
    )


def _parameters(raw: bytes, _folder: Path) -> None:
    document = decoding.decode(raw, object)
    for source in driver_parameters.Source:
        with contextlib.suppress(driver_parameters.Invalid):
            driver_parameters.decode(document, source)


def _webhook(raw: bytes, _folder: Path) -> None:
    json.dumps(review.answer(review.read(raw), DRIVER))


_REVIEW = {
    "apiVersion": review.API_VERSION,
    "kind": review.KIND,
    "request": {
        "uid": "u",
        "kind": {"group": review.GROUP, "version": "v1", "kind": "ResourceClaim"},
        "operation": "UPDATE",
        "object": _CLAIM,
        "oldObject": _CLAIM,
    },
}

# --- files and answers on a node ---

_PREPARED = records.PreparedClaim(
    namespace="a",
    name="b",
    uid="u",
    state="completed",
    devices=(
        records.PreparedDevice(
            pool="p",
            device="d",
            cdi_id="x/y=z",
            requests=("r",),
            serial="S",
            parameters={"deviceFiles": {"mode": "0660"}},
        ),
    ),
    boot_id="B",
)
_RECORD = msgspec.json.encode(_PREPARED.document())


def _record(raw: bytes, folder: Path) -> None:
    # With the checksum that it should have, else little but the checksum is tried.
    whole = b'{"version":1,"crc32":%d,"claim":%s}\n' % (zlib.crc32(raw), raw)
    for text in (raw, whole):
        with contextlib.suppress(node_errors.CheckpointError):
            store._decode(_file(folder, text, "u"), "u")


_CDI = {
    "cdiVersion": "0.6.0",
    "kind": "a.b/c",
    "devices": [
        {"name": "0", "containerEdits": {"env": ["A=B"], "deviceNodes": [{"path": "/dev/x", "type": "c"}]}}
    ],
}


def _cdi(raw: bytes, folder: Path) -> None:
    with contextlib.suppress(cdi_errors.CdiError):
        cdi_files.read(_file(folder, raw, "a.json"))
    _file(folder, raw, "b.yaml")
    with contextlib.suppress(cdi_errors.AmbiguousDevice):
        cdi_files.find(
            [folder], "a.b/c", names=frozenset({"0"}), own=frozenset({"/dev/x"}), common=frozenset()
        )


def _config_space(raw: bytes, _folder: Path) -> None:
    with contextlib.suppress(pci.ConfigSpaceHidden):
        pci.find_serial_number(lambda size, offset: raw[offset : offset + size], lambda: len(raw))


_SPACE = bytes(0x100) + (0x0003 | 1 << 16 | 0x140 << 20).to_bytes(4, "little") + b"\1" * 8 + bytes(0xEF4)
_UEVENT = b"add@/devices/pci0000:00/0000:00:01.0\0ACTION=add\0DEVPATH=/devices/pci0000:00/0000:00:01.0\0SUBSYSTEM=pci\0SEQNUM=1\0"
_AFU = _json(
    {"version": 1, "afu-image": {"interface-uuid": "a" * 32, "power": 5, "accelerator-clusters": []}}
)
_BITSTREAM = dfl.GBS + len(_AFU).to_bytes(dfl.LENGTH_BYTES, "little") + _AFU + b"image"
_HANDLE = handles.encode(
    handles.Handle(
        node="n",
        allocated_at="t",
        devices=(handles.HandleDevice(request="r", fabric="f", pool="p", device="d", attachment="f.d"),),
    )
).encode()

# --- fabric managers ---

_DEVICE = contract.Device(
    id="g",
    device_class=contract.DeviceClass.GPU,
    model="M",
    serial="S",
    compute_capability="9.0",
    memory_bytes=5,
    connection=contract.Connection(host_id="h", port_id="1", mark="m"),
)
_EVENTS = (
    fabric_pb2.WatchEvent(version="1", device_changed=conversion.device_message(_DEVICE)).SerializeToString(),
    fabric_pb2.WatchEvent(
        version="1",
        operation_changed=fabric_pb2.Operation(
            id="o", request_id="r", kind=1, done=True, error=fabric_pb2.FabricError(code=3, message="x")
        ),
    ).SerializeToString(),
)


def _encode_device(device: contract.Device) -> None:
    msgspec.json.encode(pool_devices.build_device(DRIVER, "fab", device, members=()))


def _grpc(raw: bytes, _folder: Path) -> None:
    event = conversion.event(fabric_pb2.WatchEvent.FromString(raw))
    if isinstance(event, contract.DeviceChanged):
        _encode_device(event.device)


_SYSTEM = {"@odata.id": "/redfish/v1/Systems/1", "Id": "1", "UUID": "A", "SerialNumber": "S", "HostName": "h"}
_ENDPOINT = {
    "@odata.id": "/redfish/v1/Fabrics/F/Endpoints/1",
    "Id": "1",
    "ConnectedEntities": [
        {
            "EntityType": "Processor",
            "EntityRole": "Target",
            "EntityPciId": {"ClassCode": "0x030200", "VendorId": "0x10de"},
            "Identifiers": [{"DurableNameFormat": "GCXLID", "DurableName": "00-00-00-00-00-00-00-01:0001"}],
        }
    ],
    "Links": {"ConnectedPorts": [{"@odata.id": "/redfish/v1/Fabrics/F/Switches/S/Ports/1"}]},
}
_CARD = {
    "@odata.id": "/redfish/v1/Chassis/C/PCIeDevices/1",
    "Model": "M",
    "PCIeInterface": {"MaxLanes": 16, "MaxPCIeType": "Gen5"},
    "MemorySummary": {"TotalMemorySizeMiB": 80000},
    "Status": {"Health": "OK"},
}
_TASK = {
    "@odata.id": "/t/1",
    "TaskState": "Running",
    "Payload": {"TargetUri": "/x", "JsonBody": '{"a":[{"@odata.id":"/y"}]}'},
    "Messages": [{"MessageId": "Base.1.0.ResourceInUse", "Message": "m"}],
}


def _redfish(raw: bytes, _folder: Path) -> None:
    try:
        bodies = msgspec.json.decode(raw, type=list[dict[str, object]])
    except (ValueError, RecursionError):
        # As the client decides; what it lets through is given to everything that reads documents.
        return
    listed = [documents.Document.from_json(body) for body in bodies]
    for document in listed:
        for read in (
            entities.is_target,
            entities.is_initiator,
            entities.links,
            entities.chunks,
            entities.switch,
        ):
            read(document)
        _encode_device(entities.device("d", document, listed))
        entities.host("h", document, listed)
        tasks.from_task(document)
        messages.refusal(400, document.body, what="x", changes=True)


# --- people's files ---

_KUBECONFIG = b"""apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]
users: [{name: u, user: {token: abc, as: x, as-groups: [y], exec: {apiVersion: v1, command: /nowhere, env: [{name: e}]}}}]
"""


def _read_kubeconfig(file: Path) -> None:
    """Read the whole kubeconfig, and run no program named in it."""
    with kubeconfig._explaining(str(file)):
        kubeconfig._Login(kubeconfig_files.Files([file]), None, str(file), 1.0)


_FABRIC_FILE = b"""adapter: redfish
endpoint: http://127.0.0.1:8000
timeoutSeconds: 30
tls: {verify: true}
parameters: {ports: '4'}
hosts: [{host: a, node: b}]
"""
_ALERTS = {"alerts": [{"status": "firing", "labels": {"alertname": "x", "device": "d"}, "fingerprint": "f"}]}
_REDFISH_EVENTS = {
    "Events": [
        {"MessageId": "A.1.B", "Severity": "Critical", "OriginOfCondition": {"@odata.id": "/redfish/v1/x"}}
    ]
}
_COMMAND = {"signals": [{"labels": {"device": "d"}}]}


def _signals(raw: bytes, _folder: Path) -> None:
    for source in healthpolicies.Source:
        with contextlib.suppress(signals.Unreadable):
            signals.read(source, raw)


TARGETS = {
    **{name: _object(*row) for name, row in _OBJECTS.items()},
    "parameters": Target(parse=_parameters, seeds=(_json(_PARAMETERS),), refusals=(msgspec.MsgspecError,)),
    "webhook": Target(parse=_webhook, seeds=(_json(_REVIEW),), refusals=(review.Unreadable,)),
    "signals": Target(parse=_signals, seeds=(_json(_ALERTS), _json(_REDFISH_EVENTS), _json(_COMMAND))),
    "handle": Target(
        parse=lambda raw, _: claim_versions.decode(raw.decode(errors="replace"), "claim a/b"),
        seeds=(_HANDLE,),
        refusals=(node_errors.NodeError,),
    ),
    "record": Target(parse=_record, seeds=(_RECORD,)),
    "cdi": Target(parse=_cdi, seeds=(_json(_CDI),)),
    "config-space": Target(parse=_config_space, seeds=(_SPACE,)),
    "uevent": Target(parse=lambda raw, _: uevents.parse(raw), seeds=(_UEVENT,)),
    "bitstream": Target(
        parse=lambda raw, _: dfl.parse(memoryview(raw), "a.gbs"),
        seeds=(_BITSTREAM,),
        refusals=(node_errors.NodeError,),
    ),
    "grpc": Target(parse=_grpc, seeds=_EVENTS, refusals=(DecodeError, fabric_errors.FabricError)),
    "redfish": Target(parse=_redfish, seeds=(_json([_ENDPOINT, _CARD, _SYSTEM, _TASK]),)),
    "qemu": Target(
        parse=lambda raw, _: qemu.parse(raw),
        seeds=(
            _json(
                {
                    "hosts": [{"id": "h", "qmp": "/q", "ports": ["s"]}],
                    "devices": [{"id": "d", "driver": "nvme", "serial": "S", "file": "/f"}],
                }
            ),
        ),
        refusals=(fabric_errors.InvalidConfiguration,),
    ),
    "kubeconfig": Target(
        parse=lambda raw, folder: _read_kubeconfig(_file(folder, raw, "kubeconfig")),
        seeds=(_KUBECONFIG,),
        refusals=(errors.DrawbarError,),
    ),
    "fabric-file": Target(
        parse=lambda raw, folder: sources.from_file(_file(folder, raw, "fabric.yaml")),
        seeds=(_FABRIC_FILE,),
        refusals=(errors.DrawbarError,),
    ),
    "time": Target(
        parse=lambda raw, _: meta.moment(raw.decode(errors="replace")), seeds=(b"2026-01-01T00:00:00.5Z",)
    ),
}
