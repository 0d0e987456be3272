"""Rules of a pod's claims: ``spec.resourceClaims``, and their use by containers.

Source: pkg/apis/core/validation of Kubernetes. Up to 1.30 a claim's source is an object of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import errors
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.validation import names

Json = dict[str, Any]
_CONTAINERS = ("initContainers", "containers")
_FIELDS = ("resourceClaimName", "resourceClaimTemplateName")
_BOTH = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
_NEITHER = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"


def validate(metadata: Json, spec: Json, *, nested: bool) -> Iterator[Cause]:
    """Yield every rule broken by the claims of a pod; ``nested`` is true if a claim has its source in ``source``."""
    seen: set[str] = set()
    for index, entry in enumerate(spec.get("resourceClaims") or ()):
        path, name = f"spec.resourceClaims[{index}]", entry.get("name") or ""
        source, where = (entry.get("source") or {}, f"{path}.source") if nested else (entry, path)
        yield from _name(name, path, seen, metadata, generated=bool(source.get(_FIELDS[1])))
        seen.add(name)
        sources = [key for key in _FIELDS if source.get(key) is not None]
        if len(sources) != 1:
            yield errors.invalid_value(where, "object", _BOTH if sources else _NEITHER)
        for key in sources:
            yield from names.subdomain(source[key], f"{where}.{key}")
    for key in _CONTAINERS:
        for number, container in enumerate(spec.get(key) or ()):
            yield from _check_container_claims(container, f"spec.{key}[{number}].resources.claims", seen)


def _name(name: str, path: str, seen: set[str], metadata: Json, *, generated: bool) -> Iterator[Cause]:
    here = f"{path}.name"
    if not name:
        yield errors.required_value(here)
        return
    if name in seen:
        yield errors.duplicate_value(here, name)
        return
    broken = list(names.dns_label(name, here))
    yield from broken
    if generated and not broken:
        yield from names.subdomain(f"{metadata.get('name') or ''}-{name}", here)


def _check_container_claims(container: Json, path: str, declared: set[str]) -> Iterator[Cause]:
    for index, claim in enumerate((container.get("resources") or {}).get("claims") or ()):
        here, name = f"{path}[{index}]", claim.get("name") or ""
        if not name:
            yield errors.required_value(here)
        elif name not in declared:
            held = ": " + ", ".join(sorted(declared)) if declared else " which is empty"
            text = f"must be one of the names in pod.spec.resourceClaims{held}"
            yield errors.unknown_value(here, name, text)
