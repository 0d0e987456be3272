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


def dns_label(value: str, path: str) -> Iterator[Cause]:
    """At most 63 characters of a lower-case RFC 1123 label."""
    if len(value) > 63:
        yield errors.too_long(path, 63)
    if not _LABEL.match(value):
        yield errors.invalid_value(path, value, LABEL_TEXT)


def subdomain(value: str, path: str, *, limit: int = 253) -> Iterator[Cause]:
    """At most ``limit`` characters of a lower-case RFC 1123 subdomain."""
    if len(value) > limit:
        yield errors.too_long(path, limit)
    if not _SUBDOMAIN.match(value):
        yield errors.invalid_value(path, value, SUBDOMAIN_TEXT)


def path_segment(value: str, path: str) -> Iterator[Cause]:
    """The loose names of RBAC objects: anything that can stand in a URL path."""
    if value in (".", "..") or not _RBAC.match(value):
        yield errors.invalid_value(
            path, value, "must be usable as a path segment: no '/' or '%', not '.' or '..'"
        )


def label_name(value: str, path: str) -> Iterator[Cause]:
    """A qualified name as label keys have it: an optional DNS prefix and a name of at most 63 characters."""
    prefix, slash, name = value.rpartition("/")
    if slash:
        yield from subdomain(prefix, path)
    if not name or len(name) > 63 or not _NAME_PART.match(name):
        yield errors.invalid_value(path, value, QUALIFIED_TEXT)


def attribute_name(value: str, path: str) -> Iterator[Cause]:
    """A device attribute's name: an optional domain of at most 63 and a C identifier of at most 32."""
    if not value:
        yield errors.required(path, "the name must not be empty")
        return
    domain, slash, identifier = value.rpartition("/")
    if slash:
        if not domain:
            yield errors.required(path, "the domain must not be empty")
        else:
            yield from subdomain(domain, path, limit=63)
    if not identifier:
        yield errors.required(path, "the name must not be empty")
    elif len(identifier) > 32:
        yield errors.too_long(path, 32)
    elif not _C_IDENTIFIER.match(identifier):
        text = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
        yield errors.invalid_value(path, identifier, text)


def pool_name(value: str, path: str) -> Iterator[Cause]:
    """At most 253 characters: DNS subdomains joined by slashes."""
    if not value:
        yield errors.required(path)
        return
    if len(value) > 253:
        yield errors.too_long(path, 253)
    for part in value.split("/"):
        yield from subdomain(part, path)


def driver_name(value: str, path: str) -> Iterator[Cause]:
    """At most 63 characters of a DNS subdomain."""
    if not value:
        yield errors.required(path)
    else:
        yield from subdomain(value, path, limit=63)
