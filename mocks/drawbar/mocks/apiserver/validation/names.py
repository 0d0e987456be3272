"""Name formats: DNS labels and subdomains, label names, and the qualified names of attributes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from drawbar.mocks.apiserver import errors
from drawbar.mocks.apiserver.errors import Cause

_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_NAME_PART = re.compile(r"^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$")
_C_IDENTIFIER = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_UID = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_RBAC = re.compile(r"^[^/%]+$")

SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
    "end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
QUALIFIED_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)

LABEL_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
    "validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
IDENTIFIER_TEXT = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
    "characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is "
    "'[A-Za-z_][A-Za-z0-9_]*')"
)


def dns_label(value: str, path: str) -> Iterator[Cause]:
    """Yield a problem unless the value is a lower-case RFC 1123 label of at most 63 characters."""
    if len(value) > 63:
        yield errors.invalid_value(path, value, "must be no more than 63 bytes")
    if not _LABEL.match(value):
        yield errors.invalid_value(path, value, LABEL_TEXT)


def subdomain(value: str, path: str, *, limit: int = 253) -> Iterator[Cause]:
    """Yield a problem unless the value is a lower-case RFC 1123 subdomain of at most ``limit`` characters."""
    if len(value) > limit:
        yield errors.invalid_value(path, value, f"must be no more than {limit} bytes")
    if not _SUBDOMAIN.match(value):
        yield errors.invalid_value(path, value, SUBDOMAIN_TEXT)


def path_segment(value: str, path: str) -> Iterator[Cause]:
    """Yield a problem unless the value is a name for RBAC objects: any segment of a URL path."""
    if value in (".", "..") or not _RBAC.match(value):
        yield errors.invalid_value(
            path, value, "must be usable as a path segment: no '/' or '%', not '.' or '..'"
        )


def label_name(value: str, path: str) -> Iterator[Cause]:
    """Yield the problems of a label key: an optional DNS prefix and a name of at most 63 characters."""
    prefix, slash, name = value.rpartition("/")
    if slash and not prefix:
        yield errors.invalid_value(path, value, "prefix part must be non-empty")
    elif slash and (len(prefix) > 253 or not _SUBDOMAIN.match(prefix)):
        yield errors.invalid_value(path, value, f"prefix part {SUBDOMAIN_TEXT}")
    if not name:
        yield errors.invalid_value(path, value, "name part must be non-empty")
    elif len(name) > 63:
        yield errors.invalid_value(path, value, "name part must be no more than 63 bytes")
    if not _NAME_PART.match(name):
        yield errors.invalid_value(path, value, QUALIFIED_TEXT)


def label_value(value: str, path: str) -> Iterator[Cause]:
    """Yield a problem unless the value has at most 63 characters and is empty or alphanumeric at both ends."""
    if len(value) > 63:
        yield errors.invalid_value(path, value, "must be no more than 63 bytes")
    if value and not _NAME_PART.match(value):
        yield errors.invalid_value(path, value, LABEL_VALUE_TEXT)


def attribute_name(value: str, path: str) -> Iterator[Cause]:
    """Yield the problems of an attribute's name: an optional domain of at most 63 and a C identifier of at most 32."""
    parts = value.split("/")
    if len(parts) > 2:
        yield errors.invalid_value(path, value, "must not contain more than one slash")
        return
    if len(parts) == 2:
        if parts[0]:
            yield from driver_name(parts[0], path)
        else:
            yield errors.invalid_value(path, "", "the domain must not be empty")
    if len(parts) == 2 and not parts[1]:
        yield errors.invalid_value(path, "", "the name must not be empty")
    else:
        yield from c_identifier(parts[-1], path)


def c_identifier(value: str, path: str) -> Iterator[Cause]:
    """Yield a problem unless the value is a C identifier of at most 32 characters."""
    if len(value) > 32:
        yield errors.too_long(path, 32)
    if not _C_IDENTIFIER.match(value):
        yield errors.invalid_value(path, value, IDENTIFIER_TEXT)


def full_attribute_name(value: str, path: str) -> Iterator[Cause]:
    """Yield the problems of an attribute's name with a domain."""
    yield from attribute_name(value, path)
    if "/" not in value:
        text = "a fully qualified name must be a domain and a name separated by a slash"
        yield errors.invalid_value(path, value, text)


def pool_name(value: str, path: str) -> Iterator[Cause]:
    """Yield the problems of a pool's name: DNS subdomains joined by slashes, at most 253 characters."""
    if not value:
        yield errors.required_value(path)
        return
    if len(value) > 253:
        yield errors.too_long(path, 253)
    for part in value.split("/"):
        yield from subdomain(part, path)


def driver_name(value: str, path: str) -> Iterator[Cause]:
    """Yield the problems of a driver's name: a DNS subdomain of at most 63 characters; capitals get only a warning."""
    if not value:
        yield errors.required_value(path)
        return
    if len(value) > 63:
        yield errors.too_long(path, 63)
    if not _SUBDOMAIN.match(value.lower()):
        yield errors.invalid_value(path, value.lower(), SUBDOMAIN_TEXT)


def uid(value: str, path: str) -> Iterator[Cause]:
    """Yield a problem unless the value is a UUID in its normal form."""
    if not _UID.match(value):
        text = (
            "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase "
            "hexadecimal characters"
        )
        yield errors.invalid_value(path, value, text)
