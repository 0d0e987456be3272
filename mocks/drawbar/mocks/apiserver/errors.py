"""The errors an API server answers with, each a Kubernetes ``Status`` object.

One exception class carries them all, because a client distinguishes them by ``code`` and ``reason`` alone;
the functions below build each kind with the wording of the real server.  The HTTP layer turns an
``ApiError`` into a response body with ``ApiError.body``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One reason of an invalid object: where (a field path), which kind, and the text after the path."""

    field: str
    reason: str
    message: str

    def line(self) -> str:
        """The cause as one line, as it stands in the message of a Status."""
        return f"{self.field}: {self.message}" if self.field else self.message


def required(path: str, text: str = "") -> Cause:
    """A field that must be present is missing."""
    return Cause(
        field=path,
        reason="FieldValueRequired",
        message=f"Required value: {text}" if text else "Required value",
    )


def invalid_value(path: str, value: Any, text: str) -> Cause:
    """A field has a value that is not allowed; ``value`` is shown the way the real server shows it."""
    return Cause(field=path, reason="FieldValueInvalid", message=f"Invalid value: {shown(value)}: {text}")


def unsupported(path: str, value: Any, allowed: Iterable[Any]) -> Cause:
    """A field's value is not one of an enumeration."""
    names = ", ".join(shown(item) for item in allowed)
    return Cause(
        field=path,
        reason="FieldValueNotSupported",
        message=f"Unsupported value: {shown(value)}: supported values: {names}",
    )


def forbidden_value(path: str, text: str) -> Cause:
    """A field may not be set, or not be changed by this caller."""
    return Cause(field=path, reason="FieldValueForbidden", message=f"Forbidden: {text}")


def duplicate(path: str, value: Any) -> Cause:
    """A value that must be unique occurs twice."""
    return Cause(field=path, reason="FieldValueDuplicate", message=f"Duplicate value: {shown(value)}")


def unknown_value(path: str, value: Any, text: str) -> Cause:
    """A field names something that is not there."""
    return Cause(field=path, reason="FieldValueNotFound", message=f"Not found: {shown(value)}: {text}")


def too_many(path: str, count: int, limit: int) -> Cause:
    """A list or map has more items than allowed."""
    text = f"Too many: {count}: must have at most {limit} item{'' if limit == 1 else 's'}"
    return Cause(field=path, reason="FieldValueTooMany", message=text)


def too_long(path: str, limit: int) -> Cause:
    """A string is longer than allowed (bytes)."""
    return Cause(
        field=path, reason="FieldValueTooLong", message=f"Too long: may not be more than {limit} bytes"
    )


def shown(value: Any) -> str:
    """A value as the real server prints it inside an error: quoted strings, lower-case booleans."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, int | float):
        return str(value)
    text = str(value)
    return '"' + (text if len(text) <= 200 else text[:200] + "...") + '"'


def longer_than(path: str, limit: int) -> Cause:
    """A list or a string is longer than allowed, as releases up to 1.31 report it."""
    return Cause(field=path, reason="FieldValueTooLong", message=f"Too long: may not be longer than {limit}")


@dataclass(eq=False, kw_only=True)
class ApiError(Exception):
    """A request was refused.  ``code`` is the HTTP status, ``reason`` Kubernetes' machine-readable word."""

    code: int
    reason: str
    message: str
    details: Json = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message

    def body(self) -> Json:
        """The ``Status`` object that is sent."""
        status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details:
            status["details"] = self.details
        status["code"] = self.code
        return status


def qualified(plural: str, group: str) -> str:
    """``plural.group``, or the bare plural for the core group."""
    return f"{plural}.{group}" if group else plural


def _details(kind: str, group: str, name: str) -> Json:
    return {key: value for key, value in (("name", name), ("group", group), ("kind", kind)) if value}


def bad_request(message: str) -> ApiError:
    """400: the request itself cannot be understood."""
    return ApiError(code=400, reason="BadRequest", message=message)


def unauthorized() -> ApiError:
    """401: a token was sent that the server does not know."""
    return ApiError(code=401, reason="Unauthorized", message="Unauthorized")


def forbidden(plural: str, group: str, name: str, message: str) -> ApiError:
    """403: the caller is known and may not do this."""
    subject = f'{qualified(plural, group)} "{name}"' if name else qualified(plural, group)
    text = f"{subject} is forbidden: {message}" if plural else f"forbidden: {message}"
    return ApiError(code=403, reason="Forbidden", message=text, details=_details(plural, group, name))


def not_found(plural: str, group: str, name: str) -> ApiError:
    """404: no object of that name."""
    text = f'{qualified(plural, group)} "{name}" not found'
    return ApiError(code=404, reason="NotFound", message=text, details=_details(plural, group, name))


def no_such_path() -> ApiError:
    """404: no resource is served at that path."""
    return ApiError(code=404, reason="NotFound", message="the server could not find the requested resource")


def method_not_allowed() -> ApiError:
    """405: the resource does not support this verb."""
    text = "the server does not allow this method on the requested resource"
    return ApiError(code=405, reason="MethodNotAllowed", message=text)


def not_acceptable(offered: Iterable[str]) -> ApiError:
    """406: none of the accepted answer formats is spoken here."""
    text = f"only the following media types are accepted: {', '.join(offered)}"
    return ApiError(code=406, reason="NotAcceptable", message=text)


def already_exists(plural: str, group: str, name: str) -> ApiError:
    """409 on create: the name is taken."""
    text = f'{qualified(plural, group)} "{name}" already exists'
    return ApiError(code=409, reason="AlreadyExists", message=text, details=_details(plural, group, name))


def conflict(plural: str, group: str, name: str, message: str) -> ApiError:
    """409 on a write: the stored object is not the one that the caller saw."""
    text = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {message}'
    return ApiError(code=409, reason="Conflict", message=text, details=_details(plural, group, name))


STALE = "the object has been modified; please apply your changes to the latest version and try again"


def expired(message: str) -> ApiError:
    """410: the asked-for resourceVersion or continue token is older than the history kept."""
    return ApiError(code=410, reason="Expired", message=message)


def too_large(limit: int) -> ApiError:
    """413: the body is over the limit (bytes)."""
    text = f"Request entity too large: limit is {limit}"
    return ApiError(code=413, reason="RequestEntityTooLarge", message=text)


def unsupported_media_type(accepted: Iterable[str]) -> ApiError:
    """415: the body's content type is not understood."""
    names = ", ".join(accepted)
    text = f"the body of the request was in an unknown format - accepted media types include: {names}"
    return ApiError(code=415, reason="UnsupportedMediaType", message=text)


def invalid(kind: str, group: str, name: str, causes: Iterable[Cause]) -> ApiError:
    """422: the object breaks rules; every broken rule is listed.

    Raises:
        ValueError: there is no cause.
    """
    listed = list(causes)
    if not listed:
        raise ValueError(f"an invalid {kind} needs at least one cause")
    lines = [cause.line() for cause in listed]
    body = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
    details = _details(kind, group, name)
    details["causes"] = [{"reason": c.reason, "message": c.message, "field": c.field} for c in listed]
    text = f'{qualified(kind, group)} "{name}" is invalid: {body}'
    return ApiError(code=422, reason="Invalid", message=text, details=details)


def internal(message: str) -> ApiError:
    """500: the real server also answers these cases with an internal error."""
    return ApiError(code=500, reason="InternalError", message=message)


def version_too_large(asked: int, current: int) -> ApiError:
    """504: a list asked for a resourceVersion that does not exist yet."""
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    text = f"Timeout: Too large resource version: {asked}, current: {current}"
    return ApiError(code=504, reason="Timeout", message=text, details=details)
