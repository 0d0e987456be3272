"""The errors of an API server, each a Kubernetes ``Status`` object.

There is one exception class, because clients distinguish errors only by ``code`` and ``reason``. The functions below
build each kind with the wording of the real server. The HTTP layer turns an ``ApiError`` into a response body with
``ApiError.body``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A reason for an invalid object: the field's path, the kind of problem, and the text after the path."""

    field: str
    reason: str
    message: str

    def line(self) -> str:
        """Return the cause as one line for the message of a Status."""
        return f"{self.field}: {self.message}" if self.field else self.message


def required_value(path: str, text: str = "") -> Cause:
    """Return the cause for a missing required field."""
    return Cause(
        field=path,
        reason="FieldValueRequired",
        message=f"Required value: {text}" if text else "Required value",
    )


def invalid_value(path: str, value: Any, text: str) -> Cause:
    """Return the cause for a value that is not allowed; ``value`` is shown as by the real server."""
    return Cause(
        field=path, reason="FieldValueInvalid", message=f"Invalid value: {format_value(value)}: {text}"
    )


def unsupported_value(path: str, value: Any, allowed: Iterable[Any]) -> Cause:
    """Return the cause for a value outside an enumeration."""
    names = ", ".join(format_value(item) for item in allowed)
    return Cause(
        field=path,
        reason="FieldValueNotSupported",
        message=f"Unsupported value: {format_value(value)}: supported values: {names}",
    )


def forbidden_value(path: str, text: str) -> Cause:
    """Return the cause for a field that must not be set, or not by this caller."""
    return Cause(field=path, reason="FieldValueForbidden", message=f"Forbidden: {text}")


def duplicate_value(path: str, value: Any) -> Cause:
    """Return the cause for a repeated value that must be unique."""
    return Cause(field=path, reason="FieldValueDuplicate", message=f"Duplicate value: {format_value(value)}")


def unknown_value(path: str, value: Any, text: str) -> Cause:
    """Return the cause for a reference to a missing thing."""
    return Cause(field=path, reason="FieldValueNotFound", message=f"Not found: {format_value(value)}: {text}")


def too_many(path: str, count: int, limit: int) -> Cause:
    """Return the cause for a list or map with too many items."""
    text = f"Too many: {count}: must have at most {limit} item{'' if limit == 1 else 's'}"
    return Cause(field=path, reason="FieldValueTooMany", message=text)


def too_long(path: str, limit: int) -> Cause:
    """Return the cause for a string with too many bytes."""
    return Cause(
        field=path, reason="FieldValueTooLong", message=f"Too long: may not be more than {limit} bytes"
    )


def format_value(value: Any) -> str:
    """Return a value as shown in the real server's errors: quoted strings, lower-case booleans."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, int | float):
        return str(value)
    text = str(value)
    return '"' + (text if len(text) <= 200 else text[:200] + "...") + '"'


def longer_than(path: str, limit: int) -> Cause:
    """Return the cause for a list or string that is too long, in the words of releases up to 1.31."""
    return Cause(field=path, reason="FieldValueTooLong", message=f"Too long: may not be longer than {limit}")


@dataclass(eq=False, kw_only=True)
class ApiError(Exception):
    """A refused request. ``code`` is the HTTP status, ``reason`` Kubernetes' machine-readable word."""

    code: int
    reason: str
    message: str
    details: Json = field(default_factory=dict)
    metadata: Json = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message

    def body(self) -> Json:
        """Return the ``Status`` object to send."""
        status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details:
            status["details"] = self.details
        status["code"] = self.code
        return status


def qualify_name(plural: str, group: str) -> str:
    """Return ``plural.group``, or the bare plural for the core group."""
    return f"{plural}.{group}" if group else plural


def _details(kind: str, group: str, name: str) -> Json:
    return {key: value for key, value in (("name", name), ("group", group), ("kind", kind)) if value}


def bad_request(message: str) -> ApiError:
    """Return a 400: the request itself is malformed."""
    return ApiError(code=400, reason="BadRequest", message=message)


def unauthorized_error() -> ApiError:
    """Return a 401: the token is unknown."""
    return ApiError(code=401, reason="Unauthorized", message="Unauthorized")


def forbidden_error(plural: str, group: str, name: str, message: str) -> ApiError:
    """Return a 403: the caller is known and lacks the permission."""
    subject = f'{qualify_name(plural, group)} "{name}"' if name else qualify_name(plural, group)
    text = f"{subject} is forbidden: {message}" if plural else f"forbidden: {message}"
    return ApiError(code=403, reason="Forbidden", message=text, details=_details(plural, group, name))


def not_found(plural: str, group: str, name: str) -> ApiError:
    """Return a 404: there is no object of the name."""
    text = f'{qualify_name(plural, group)} "{name}" not found'
    return ApiError(code=404, reason="NotFound", message=text, details=_details(plural, group, name))


def no_such_path() -> ApiError:
    """Return a 404: no resource is served at the path."""
    return ApiError(code=404, reason="NotFound", message="the server could not find the requested resource")


def method_not_allowed() -> ApiError:
    """Return a 405: the resource does not support the verb."""
    text = "the server does not allow this method on the requested resource"
    return ApiError(code=405, reason="MethodNotAllowed", message=text)


def not_acceptable(offered: Iterable[str]) -> ApiError:
    """Return a 406: none of the accepted answer formats is supported."""
    text = f"only the following media types are accepted: {', '.join(offered)}"
    return ApiError(code=406, reason="NotAcceptable", message=text)


def already_exists(plural: str, group: str, name: str) -> ApiError:
    """Return a 409 for a create: the name is in use."""
    text = f'{qualify_name(plural, group)} "{name}" already exists'
    return ApiError(code=409, reason="AlreadyExists", message=text, details=_details(plural, group, name))


def conflict(plural: str, group: str, name: str, message: str) -> ApiError:
    """Return a 409 for a write: the stored object differs from the caller's."""
    text = f'Operation cannot be fulfilled on {qualify_name(plural, group)} "{name}": {message}'
    return ApiError(code=409, reason="Conflict", message=text, details=_details(plural, group, name))


STALE = "the object has been modified; please apply your changes to the latest version and try again"


TOO_OLD = "The resourceVersion for the provided {} is too old."


def expired_error(message: str, *, token: str = "") -> ApiError:
    """Return a 410: the requested resourceVersion or continue token is older than the kept history.

    Args:
        message: for the client.
        token: continues the list all the same.
    """
    metadata = {"continue": token} if token else {}
    return ApiError(code=410, reason="Expired", message=message, metadata=metadata)


def too_large(limit: int) -> ApiError:
    """Return a 413: the body is over the limit (bytes)."""
    text = f"Request entity too large: limit is {limit}"
    return ApiError(code=413, reason="RequestEntityTooLarge", message=text)


def unsupported_media_type(accepted: Iterable[str]) -> ApiError:
    """Return a 415: the body's content type is not supported."""
    names = ", ".join(accepted)
    text = f"the body of the request was in an unknown format - accepted media types include: {names}"
    return ApiError(code=415, reason="UnsupportedMediaType", message=text)


def invalid_error(kind: str, group: str, name: str, causes: Iterable[Cause]) -> ApiError:
    """Return a 422: the object breaks rules; every broken rule is listed.

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
    text = f'{qualify_name(kind, group)} "{name}" is invalid: {body}'
    return ApiError(code=422, reason="Invalid", message=text, details=details)


def internal_error(message: str) -> ApiError:
    """Return a 500, as the real server does in the same cases."""
    return ApiError(code=500, reason="InternalError", message=message)


def version_too_large(asked: int, current: int) -> ApiError:
    """Return a 504: the requested resourceVersion does not exist yet."""
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    text = f"Timeout: Too large resource version: {asked}, current: {current}"
    return ApiError(code=504, reason="Timeout", message=text, details=details)
