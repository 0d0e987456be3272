"""Rules of conditions (``metav1.Condition``) in any object."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import errors
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.validation import names

Json = dict[str, Any]

STATUSES = ("False", "True", "Unknown")
MAX_REASON = 1024  # characters
MAX_MESSAGE = 32_768  # characters
_REASON = re.compile(r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
_REASON_TEXT = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
    "'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
    "'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)


def validate(items: list[Json], path: str) -> Iterator[Cause]:
    """Yield every rule broken by a list of conditions."""
    seen: set[str] = set()
    for index, condition in enumerate(items):
        here = f"{path}[{index}]"
        kind = condition.get("type") or ""
        if kind in seen:
            yield errors.duplicate_value(f"{here}.type", kind)
        seen.add(kind)
        yield from _condition(condition, here)


def _condition(condition: Json, path: str) -> Iterator[Cause]:
    kind, reason = condition.get("type") or "", condition.get("reason") or ""
    yield from names.label_name(kind, f"{path}.type")
    if condition.get("status") not in STATUSES:
        yield errors.unsupported_value(f"{path}.status", condition.get("status", ""), STATUSES)
    if (condition.get("observedGeneration") or 0) < 0:
        text = "must be greater than or equal to zero"
        yield errors.invalid_value(f"{path}.observedGeneration", condition["observedGeneration"], text)
    if not condition.get("lastTransitionTime"):
        yield errors.required_value(f"{path}.lastTransitionTime")
    if not reason:
        yield errors.required_value(f"{path}.reason")
    elif len(reason) > MAX_REASON:
        yield errors.too_long(f"{path}.reason", MAX_REASON)
    elif not _REASON.match(reason):
        yield errors.invalid_value(f"{path}.reason", reason, _REASON_TEXT)
    if len(condition.get("message") or "") > MAX_MESSAGE:
        yield errors.too_long(f"{path}.message", MAX_MESSAGE)
