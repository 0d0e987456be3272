"""Rules of Leases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import errors
from drawbar.mocks.apiserver.errors import Cause

Json = dict[str, Any]


def validate(spec: Json) -> Iterator[Cause]:
    """Yield every rule broken by a lease."""
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        yield errors.invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    if transitions is not None and transitions < 0:
        text = "must be greater than or equal to 0"
        yield errors.invalid_value("spec.leaseTransitions", transitions, text)
    if spec.get("preferredHolder") and not spec.get("strategy"):
        text = "if preferredHolder is specified, strategy must be specified as well"
        yield errors.invalid_value("spec.preferredHolder", spec["preferredHolder"], text)
