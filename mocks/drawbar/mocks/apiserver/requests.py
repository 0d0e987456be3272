"""The parts of a request: its path, its decoded body, its answer format."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

from drawbar.mocks.apiserver import errors, protobuf, rawtext

Json = dict[str, Any]

BODY_LIMIT = 3 * 1024 * 1024  # bytes, the limit of the real server
_LONGEST_NUMBER = 18  # digits; every one of these fits the 64 bits of the real server
_ESCAPED = {b"<": b"\\u003c", b">": b"\\u003e", b"&": b"\\u0026"}
_ESCAPED_SEPARATORS = {"\u2028".encode(): b"\\u2028", "\u2029".encode(): b"\\u2029"}
JSON_TYPE = "application/json"
YAML_TYPE = "application/yaml"
APPLY_TYPE = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A resource path; ``name`` is empty for a collection."""

    group: str
    version: str
    namespace: str = ""
    plural: str = ""
    name: str = ""
    subresource: str = ""


class _PlainLoader(yaml.SafeLoader):
    """YAML with the scalars of JSON only: time stamps stay text."""


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def target(path: str) -> Target | None:
    """Return the resource path, or None for a path without a resource.

    A path that ends with the version (discovery) has an empty ``plural``.
    """
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 2 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 3 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if (
        rest[:1] == ["namespaces"]
        and len(rest) >= 3
        and not (len(rest) == 3 and rest[2] in ("status", "finalize"))
    ):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        return None
    plural, name, subresource = (*rest, "", "", "")[:3]
    return Target(
        group=group, version=version, namespace=namespace, plural=plural, name=name, subresource=subresource
    )


def decode(body: bytes, content_type: str, accepted: tuple[str, ...]) -> Any:
    """Return the decoded body.

    Raises:
        ApiError: 415, the content type is none of ``accepted``; 400, the body is malformed.
    """
    kind = content_type.split(";", maxsplit=1)[0].strip().lower() or JSON_TYPE
    if kind == protobuf.CONTENT_TYPE and JSON_TYPE in accepted:
        return _decode_protobuf(body, accepted)
    if kind not in accepted:
        raise errors.unsupported_media_type(accepted)
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(body)
    try:
        return rawtext.drop_stand_ins(msgspec.json.decode(rawtext.insert_stand_ins(body)))
    except (msgspec.DecodeError, RecursionError) as error:
        if not kind.endswith("yaml"):
            raise errors.bad_request(f"couldn't get version/kind; json parse error: {error}") from error
    try:
        value = yaml.load(body, Loader=_PlainLoader)  # noqa: S506 - a SafeLoader with fewer types
        return msgspec.json.decode(msgspec.json.encode(value))
    except (yaml.YAMLError, msgspec.MsgspecError, TypeError, RecursionError, UnicodeDecodeError) as error:
        text = str(error).splitlines()[0]
        raise errors.bad_request(f"error decoding YAML: {text}") from error


def encode(value: Any) -> bytes:
    """Return the JSON of an answer in the style of Go's encoder: characters with a meaning in HTML are escaped."""
    body, escapes = msgspec.json.encode(value), _ESCAPED
    # Skipped for ASCII, because a search for several bytes takes as long as the encoding.
    if not body.isascii():
        body, escapes = rawtext.restore_raw_text(body), _ESCAPED | _ESCAPED_SEPARATORS
    # All of these characters occur only in strings.
    for plain, escaped in escapes.items():
        body = body.replace(plain, escaped)
    return body


def _decode_protobuf(body: bytes, accepted: tuple[str, ...]) -> Json:
    try:
        return protobuf.decode(body)
    except protobuf.UnknownKindError as error:
        raise errors.unsupported_media_type(accepted) from error
    except ValueError as error:
        raise errors.bad_request(f"error decoding protobuf: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The requested form of an answer: ``Table``, ``PartialObjectMetadata`` or the objects ("")."""

    form: str = ""


def answer(accept: str) -> Answer:
    """Return the first supported form of an Accept header.

    Raises:
        ApiError: 406, no form in it is supported.
    """
    if not accept:
        return Answer()
    for choice in accept.split(","):
        kind, *parameters = (part.strip() for part in choice.split(";"))
        options = dict(part.split("=", 1) for part in parameters if "=" in part)
        if kind not in (JSON_TYPE, "*/*", "application/*"):
            continue
        form = options.get("as", "")
        if form == "Table" and options.get("v", "v1") == "v1":
            return Answer(form="Table")
        if form in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            return Answer(form="PartialObjectMetadata")
        if not form:
            return Answer()
    raise errors.not_acceptable((JSON_TYPE,))


def whole_number(text: str | None, name: str) -> int | None:
    """Return a numeric query parameter, or None if it is absent.

    Raises:
        ApiError: 400.
    """
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER):
        raise errors.bad_request(f"invalid {name} {errors.format_value(text)}: it must be a whole number")
    return int(text)


def is_true(text: str | None) -> bool:
    """Return the value of a boolean query parameter, by Kubernetes' rules."""
    return text is not None and text.lower() not in ("false", "0")
