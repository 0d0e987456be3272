"""Rules of DeviceClasses and ResourceClaimTemplates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import errors
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.validation import claimspecs, lists, selectors

Json = dict[str, Any]
_EXTENDED = re.compile(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
_RESERVED = ("kubernetes.io/", "requests.")


def validate(spec: Json) -> Iterator[Cause]:
    """Every rule that a device class breaks."""
    yield from selectors.validate(spec.get("selectors") or [], "spec.selectors")
    yield from lists.each(
        spec.get("config") or [], "spec.config", claimspecs.configuration, limit=claimspecs.MAX_CONFIGS
    )
    name = spec.get("extendedResourceName")
    if name is not None and not _is_extended(name):
        text = "must be a valid extended resource name"
        yield errors.invalid_value("spec.extendedResourceName", name, text)


def _is_extended(name: str) -> bool:
    domain = name.partition("/")[0] + "/"
    native = domain == "kubernetes.io/" or domain.endswith(".kubernetes.io/")
    return bool(_EXTENDED.match(name)) and not native and not name.startswith(_RESERVED)


def template(spec: Json) -> Iterator[Cause]:
    """Every rule that the spec of a claim template breaks."""
    yield from claimspecs.validate(spec.get("spec") or {}, "spec.spec")
