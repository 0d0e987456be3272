"""The protobuf bodies of kubectl's imperative commands (``create namespace``, ``auth can-i``).

Kubernetes wraps such a body in a magic prefix and a ``runtime.Unknown`` message. The tables below list the field
numbers of the supported kinds (from the generated.proto files of k8s.io/api). A body of another kind is refused with
415. Answers are always JSON, which those clients accept.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """Field numbers: strings, numbers, maps of strings, maps of bytes, and nested messages."""

    text: Mapping[int, str] = field(default_factory=dict)
    numbers: Mapping[int, str] = field(default_factory=dict)
    maps: Mapping[int, str] = field(default_factory=dict)
    byte_maps: Mapping[int, str] = field(default_factory=dict)
    nested: Mapping[int, tuple[str, _Message]] = field(default_factory=dict)


_TYPE = _Message(text={1: "apiVersion", 2: "kind"})
_UNKNOWN = _Message(nested={1: ("typeMeta", _TYPE)})
_META = _Message(text={1: "name", 2: "generateName", 3: "namespace"}, maps={11: "labels", 12: "annotations"})
_RESOURCE = _Message(
    text={1: "namespace", 2: "verb", 3: "group", 4: "version", 5: "resource", 6: "subresource", 7: "name"}
)
_PATH = _Message(text={1: "path", 2: "verb"})
_ACCESS = _Message(nested={1: ("resourceAttributes", _RESOURCE), 2: ("nonResourceAttributes", _PATH)})
_METADATA = {1: ("metadata", _META)}
_BOUND = _Message(text={1: "kind", 2: "apiVersion", 3: "name", 4: "uid"})
_TOKEN = _Message(numbers={4: "expirationSeconds"}, nested={3: ("boundObjectRef", _BOUND)})
_KINDS = {
    "SelfSubjectAccessReview": _Message(nested={**_METADATA, 2: ("spec", _ACCESS)}),
    "SelfSubjectReview": _Message(nested=_METADATA),
    "TokenRequest": _Message(nested={**_METADATA, 2: ("spec", _TOKEN)}),
    "Namespace": _Message(nested=_METADATA),
    "ServiceAccount": _Message(nested=_METADATA),
    "ConfigMap": _Message(nested=_METADATA, maps={2: "data"}, byte_maps={3: "binaryData"}),
    "Secret": _Message(nested=_METADATA, byte_maps={2: "data"}, text={3: "type"}, maps={4: "stringData"}),
}


class UnknownKindError(ValueError):
    """The body is of an unsupported kind."""


def decode(body: bytes) -> Json:
    """Return the object in a protobuf body.

    Raises:
        UnknownKindError: its kind is not supported.
        ValueError: the body is malformed.
    """
    if not body.startswith(_MAGIC):
        raise ValueError("the body lacks the prefix of Kubernetes protobuf")
    envelope = body[len(_MAGIC) :]
    names = _decode(envelope, _UNKNOWN).get("typeMeta") or {}
    message = _KINDS.get(names.get("kind", ""))
    if message is None:
        raise UnknownKindError(f"protobuf bodies of kind {names.get('kind')!r} are not understood; send JSON")
    raw = next((value for number, value in _fields(envelope) if number == 2), b"")
    return {**names, "metadata": {}, **_decode(_bytes(raw), message)}


def _decode(data: bytes, message: _Message) -> Json:
    document: Json = {}
    for number, field_value in _fields(data):
        if isinstance(field_value, int):
            if number in message.numbers:
                document[message.numbers[number]] = field_value
            continue
        value = field_value
        if number in message.text:
            if value:  # Go writes empty strings; JSON omits them
                document[message.text[number]] = value.decode()
        elif number in message.nested:
            name, inner = message.nested[number]
            document[name] = _decode(value, inner)
        elif number in message.maps:
            key, content = _pair(value)
            document.setdefault(message.maps[number], {})[key] = content.decode()
        elif number in message.byte_maps:
            key, content = _pair(value)
            document.setdefault(message.byte_maps[number], {})[key] = base64.b64encode(content).decode()
    return document


def _pair(data: bytes) -> tuple[str, bytes]:
    parts = dict(_fields(data))
    return _bytes(parts.get(1, b"")).decode(), _bytes(parts.get(2, b""))


def _bytes(value: bytes | int) -> bytes:
    if isinstance(value, int):
        raise ValueError("a protobuf field is a number where bytes are expected")  # noqa: TRY004 - bad input, not a bug
    return value


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield the length-delimited fields of a message and its plain numbers; skip fixed-size ones."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        match tag & 7:
            case 0:
                number, position = _varint(data, position)
                yield tag >> 3, number
            case 1:
                position += 8
            case 2:
                size, position = _varint(data, position)
                if position + size > len(data):
                    raise ValueError("a protobuf field is longer than its message")
                yield tag >> 3, data[position : position + size]
                position += size
            case 5:
                position += 4
            case other:
                raise ValueError(f"wire type {other} is not part of protobuf 3")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, position
        shift += 7
    raise ValueError("a protobuf number is cut off")
