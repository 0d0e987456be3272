"""The kinds of ``resource.k8s.io`` in 1.30 and 1.31: defaults and checks."""

# ruff: noqa: ARG002 - the methods of all strategies share one signature
from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.profiles import Profile
from drawbar.mocks.apiserver.strategies import Call, Strategy
from drawbar.mocks.apiserver.validation import (
    alpharequests,
    claims,
    classicclaims,
    resourceclasses,
)

Json = dict[str, Any]


class Claims(Strategy):
    """ResourceClaims, allocated and deallocated by a driver's controller."""

    def prepare_create(self, item: Json, call: Call) -> Json:
        """Default the spec."""
        item = super().prepare_create(item, call)
        return {**item, "spec": _spec(item.get("spec") or {}, self.profile)}

    def prepare_update(self, item: Json, old: Json, call: Call) -> Json:
        """Default the spec."""
        item = super().prepare_update(item, old, call)
        if call.subresource != "status":
            return {**item, "spec": _spec(item.get("spec") or {}, self.profile)}
        return item

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """Check the spec."""
        yield from _check_claim_spec(item["spec"], self.profile)

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Check that the spec is unchanged, or check a new status."""
        spec = item.get("spec") or {}
        if call.subresource != "status":
            yield from claims.immutable_spec(spec, old.get("spec") or {})
            yield from _check_claim_spec(spec, self.profile)
            return
        status, before = item.get("status") or {}, old.get("status") or {}
        deleted = bool(item["metadata"].get("deletionTimestamp"))
        if _is_class_based(self.profile):
            yield from resourceclasses.claim_status(status, before, deleted=deleted)
        else:
            yield from alpharequests.claim_status(status, before, spec, deleted=deleted)


class Templates(Strategy):
    """ResourceClaimTemplates: the spec is immutable."""

    def prepare_create(self, item: Json, call: Call) -> Json:
        """Default as for claims."""
        return self._add_defaults(item)

    def prepare_update(self, item: Json, old: Json, call: Call) -> Json:
        """Default as for claims, so that an unchanged template compares as unchanged."""
        return self._add_defaults(item)

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """Check the claim's spec."""
        yield from _check_claim_spec(item["spec"]["spec"], self.profile, "spec.spec")

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Check that the spec is unchanged."""
        yield from claims.immutable_spec(item["spec"], old.get("spec") or {})
        yield from _check_claim_spec(item["spec"]["spec"], self.profile, "spec.spec")

    def _add_defaults(self, item: Json) -> Json:
        outer = item.get("spec") or {}
        return {**item, "spec": {**outer, "spec": _spec(outer.get("spec") or {}, self.profile)}}


class Contexts(Strategy):
    """PodSchedulingContexts: the scheduler's questions and the controllers' answers."""

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """Check the spec."""
        yield from classicclaims.context_spec(item.get("spec") or {})

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Check the spec, or the status."""
        if call.subresource == "status":
            yield from classicclaims.context_status(item.get("status") or {})
        else:
            yield from classicclaims.context_spec(item.get("spec") or {})


class ResourceClasses(Strategy):
    """ResourceClasses of 1.30; each names its driver."""

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """Check the whole class."""
        yield from resourceclasses.resource_class(item)

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Check the whole class; everything may change."""
        yield from resourceclasses.resource_class(item)


class DeviceClasses(Strategy):
    """DeviceClasses of 1.31, with their suitable nodes."""

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """Check the spec."""
        yield from alpharequests.device_class(item["spec"])

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Check the spec."""
        yield from alpharequests.device_class(item["spec"])


BY_PLURAL: Mapping[str, type[Strategy]] = MappingProxyType(
    {
        "resourceclaims": Claims,
        "resourceclaimtemplates": Templates,
        "podschedulingcontexts": Contexts,
        "resourceclasses": ResourceClasses,
        "deviceclasses": DeviceClasses,
    }
)


def _is_class_based(profile: Profile) -> bool:
    """Return true if claims name a ResourceClass and have no requests."""
    return profile.dynamic_version == "v1alpha2"


def _spec(spec: Json, profile: Profile) -> Json:
    if _is_class_based(profile):
        return resourceclasses.add_defaults(spec)
    return alpharequests.add_defaults(spec)


def _check_claim_spec(spec: Json, profile: Profile, path: str = "spec") -> Iterator[Cause]:
    yield from (resourceclasses if _is_class_based(profile) else alpharequests).claim(spec, path)
