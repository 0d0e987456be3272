"""Rules of PodSchedulingContexts.

Source: pkg/apis/resource/validation of Kubernetes 1.30 and 1.31, which are alike.  An entry's name is not compared with
the pod's claims, and the selected node may be any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.validation import classicclaims, lists, names

Json = dict[str, Any]
MAX_NODES = 128  # of the potential nodes, and of each claim's unsuitable ones


def spec(value: Json) -> Iterator[Cause]:
    """Every rule that the spec breaks."""
    yield from _nodes(value.get("potentialNodes") or [], "spec.potentialNodes")


def status(value: Json) -> Iterator[Cause]:
    """Every rule that the status breaks; the real server names the field ``claims``, which it is not."""
    entries = value.get("resourceClaims") or []
    yield from lists.distinct(entries, "status.claims", _entry, lambda entry: entry.get("name") or "")


def _entry(entry: Json, path: str) -> Iterator[Cause]:
    yield from _nodes(entry.get("unsuitableNodes") or [], f"{path}.unsuitableNodes")


def _nodes(items: list[str], path: str) -> Iterator[Cause]:
    yield from classicclaims.distinct(items, path, names.subdomain, str, limit=MAX_NODES)
