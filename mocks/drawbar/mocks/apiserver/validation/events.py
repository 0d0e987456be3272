"""Rules of Events.

An Event with an ``eventTime`` must keep the limits of the new API, in every version. An Event written through
``events.k8s.io/v1`` must have it, and only its series may change. As in the real server, the field paths are those of
the internal type, so a ``note`` that is too long is reported as ``message``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import errors
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.validation import names

Json = dict[str, Any]

MAX_NOTE_BYTES = 1024
MAX_BYTES = 128  # of a reason, an action and a reporting instance
_FIXED = (
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
)


def validate(event: Json, *, strict: bool) -> Iterator[Cause]:
    """Yield every rule broken by a new Event; ``strict`` is for one written through ``events.k8s.io``."""
    yield from _namespaces(event)
    if event.get("eventTime"):
        yield from _limits(event)
    if not strict:
        return
    yield from _series(event)
    if not event.get("eventTime"):
        yield errors.required_value("eventTime")
    if event.get("type") not in ("Normal", "Warning"):
        yield errors.invalid_value("type", "", f"has invalid value: {event.get('type') or ''}")
    for key in ("firstTimestamp", "lastTimestamp", "count"):
        if event.get(key):
            yield errors.invalid_value(key, "", "needs to be unset")
    if any((event.get("source") or {}).values()):
        yield errors.invalid_value("source", "", "needs to be unset")


def validate_update(event: Json, old: Json, *, strict: bool) -> Iterator[Cause]:
    """Yield every rule broken by a change of an Event."""
    yield from _namespaces(event)
    if event.get("eventTime"):
        yield from _limits(event)
    if not strict:
        return
    if event.get("series") != old.get("series"):
        yield from _series(event)
    for key in _FIXED:
        if (event.get(key) or None) != (old.get(key) or None):
            path = "reportingController" if key == "reportingComponent" else key
            yield errors.invalid_value(path, event.get(key), "field is immutable")


def _namespaces(event: Json) -> Iterator[Cause]:
    """Yield a problem unless the Event is in its object's namespace, or in ``default`` for cluster-wide objects."""
    about, own = (
        (event.get("involvedObject") or {}).get("namespace") or "",
        event["metadata"].get("namespace"),
    )
    if event.get("eventTime"):
        wrong = not about and own not in ("default", "kube-system")
    else:
        wrong = own != "default" if not about else own != about
    if wrong:
        yield errors.invalid_value("involvedObject.namespace", about, "does not match event.namespace")


def _limits(event: Json) -> Iterator[Cause]:
    controller = event.get("reportingComponent") or ""
    if not controller:
        yield errors.required_value("reportingController")
    yield from names.label_name(controller, "reportingController")
    for key in ("reportingInstance", "action", "reason"):
        held = event.get(key) or ""
        if not held:
            yield errors.required_value(key)
        if len(held.encode()) > MAX_BYTES:
            yield errors.invalid_value(key, "", f"can have at most {MAX_BYTES} characters")
    if len((event.get("message") or "").encode()) > MAX_NOTE_BYTES:
        yield errors.invalid_value("message", "", f"can have at most {MAX_NOTE_BYTES} characters")


def _series(event: Json) -> Iterator[Cause]:
    series = event.get("series")
    if series is None:
        return
    if (series.get("count") or 0) < 2:
        yield errors.invalid_value("series.count", "", "should be at least 2")
    if not series.get("lastObservedTime"):
        yield errors.required_value("series.lastObservedTime")
