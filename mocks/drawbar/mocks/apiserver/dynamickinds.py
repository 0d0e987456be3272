"""The kinds of ``resource.k8s.io``: dropped fields, defaults, checks and permissions."""

# ruff: noqa: ARG002 - the methods of all strategies share one signature
from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from drawbar.mocks.apiserver import errors, profiles, rbac
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.resources import RESOURCE_GROUP
from drawbar.mocks.apiserver.strategies import Call, Strategy
from drawbar.mocks.apiserver.validation import claims, claimspecs, gates, slices, taints

Json = dict[str, Any]


class Claims(Strategy):
    """ResourceClaims, with the extra permissions for a change of status since 1.36."""

    def rewrite_applied(self, item: Json) -> Json:
        """Return the object with its opaque parameters re-encoded."""
        return claims.sort_opaque_keys(item)

    def prepare_create(self, item: Json, call: Call) -> Json:
        """Drop the fields of disabled gates, and default the requests."""
        item = super().prepare_create(item, call)
        spec = claimspecs.add_defaults(gates.claim_spec(item.get("spec") or {}, self.profile))
        return {**item, "spec": spec}

    def prepare_update(self, item: Json, old: Json, call: Call) -> Json:
        """Clear the device entries of a removed allocation, and the fields of disabled gates."""
        item = super().prepare_update(item, old, call)
        if call.subresource != "status":
            return {**item, "spec": claimspecs.add_defaults(item.get("spec") or {})}
        before = old.get("status") or {}
        asked = item.get("status") or {}
        status = claims.drop_deallocated(asked, before, asked)
        return {**item, "status": gates.claim_status(status, before, self.profile)}

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """Check the spec; administrative access needs a labelled namespace."""
        yield from self._check_admin_access(claimspecs.admin_requests(item["spec"]), call)
        yield from claimspecs.validate(item["spec"])

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Check that the spec is unchanged; check and authorize a new status."""
        yield from claims.immutable_spec(item.get("spec") or {}, old.get("spec") or {})
        if call.subresource != "status":
            return
        status, before = item.get("status") or {}, old.get("status") or {}
        if self.profile.is_on(profiles.GRANULAR_STATUS):
            yield from self._check_permissions(status, before, call)
        if not any(claims.admin_results(before)):
            yield from self._check_admin_access(claims.admin_results(status), call)
        deleted = bool(item["metadata"].get("deletionTimestamp"))
        yield from claims.validate_status(status, before, item.get("spec") or {}, deleted=deleted)

    def _check_admin_access(self, paths: Iterable[str], call: Call) -> Iterator[Cause]:
        first = next(iter(paths), None)
        if first is None or self.namespace_labels(call).get(claimspecs.ADMIN_LABEL) == "true":
            return
        text = (
            f"admin access to devices requires the `{claimspecs.ADMIN_LABEL}: true` label on the containing "
            "namespace"
        )
        yield errors.forbidden_value(first, text)

    def _check_permissions(self, status: Json, before: Json, call: Call) -> Iterator[Cause]:
        if any(status.get(key) != before.get(key) for key in ("allocation", "reservedFor")):
            wanted = rbac.Attributes(
                verb=call.verb, group=RESOURCE_GROUP, resource="resourceclaims", subresource="binding"
            )
            if not self.authorizer.allows(call.user, wanted):
                text = (
                    "changing status.allocation or status.reservedFor requires "
                    f'resource="resourceclaims/binding", verb="{call.verb}" permission: '
                )
                yield errors.forbidden_value("status", text + self._format_refusal(call, wanted))
        verbs = [f"arbitrary-node:{call.verb}"]
        node = claims.allocated_node(status)
        if node and call.user.node == node:
            verbs.insert(0, f"associated-node:{call.verb}")
        # The server itself removes the entries of deallocated devices, so no user needs a permission for that.
        for driver in claims.modified_drivers(status, claims.drop_deallocated(before, before, status)):
            needed = [self._attributes(call, verb, driver) for verb in verbs]
            if not any(self.authorizer.allows(call.user, wanted) for wanted in needed):
                text = (
                    'changing status.devices requires resource="resourceclaims/driver", '
                    f'verb="[{" ".join(verbs)}]" permission: '
                )
                yield errors.forbidden_value("status.devices", text + self._format_refusal(call, needed[0]))

    @staticmethod
    def _attributes(call: Call, verb: str, driver: str) -> rbac.Attributes:
        return rbac.Attributes(
            verb=verb,
            group=RESOURCE_GROUP,
            resource="resourceclaims",
            subresource="driver",
            namespace=call.namespace,
            name=driver,
        )

    @staticmethod
    def _format_refusal(call: Call, wanted: rbac.Attributes) -> str:
        plural = "resourceclaims"
        refusal = rbac.refusal(call.user, wanted)
        return errors.forbidden_error(plural, RESOURCE_GROUP, wanted.name, refusal).message


class Templates(Strategy):
    """ResourceClaimTemplates: the spec is immutable."""

    def prepare_create(self, item: Json, call: Call) -> Json:
        """Drop and default as for claims."""
        return self._add_defaults(item)

    def prepare_update(self, item: Json, old: Json, call: Call) -> Json:
        """Default the spec, so that an unchanged template compares as unchanged."""
        return self._add_defaults(item)

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """Check the claim's spec."""
        yield from claimspecs.validate_template(item["spec"])

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Check that the spec is unchanged."""
        yield from claims.immutable_spec(item["spec"], old.get("spec") or {})

    def _add_defaults(self, item: Json) -> Json:
        spec = item.get("spec") or {}
        inner = gates.claim_spec(spec.get("spec") or {}, self.profile)
        return {**item, "spec": {**spec, "spec": claimspecs.add_defaults(inner)}}


class Slices(Strategy):
    """ResourceSlices."""

    def prepare_create(self, item: Json, call: Call) -> Json:
        """Drop the fields of disabled gates, then set the times of taints."""
        spec = gates.slice_spec(item.get("spec") or {}, None, self.profile)
        return {**item, "spec": self._prepare_spec(spec, call)}

    def prepare_update(self, item: Json, old: Json, call: Call) -> Json:
        """Drop the fields of disabled gates except those in use, then set the times of taints."""
        spec = gates.slice_spec(item.get("spec") or {}, old.get("spec"), self.profile)
        return {**item, "spec": self._prepare_spec(spec, call)}

    def _prepare_spec(self, spec: Json, call: Call) -> Json:
        return gates.without_empty_devices(slices.with_times(spec, now=call.now), self.profile)

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """Check the spec."""
        call.warnings.extend(slices.warnings(item["spec"]))
        yield from slices.validate(item["spec"], self.profile)

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Check the spec and its immutable fields."""
        call.warnings.extend(slices.warnings(item["spec"]))
        yield from slices.validate(item["spec"], self.profile, old.get("spec") or {})


class Classes(Strategy):
    """DeviceClasses."""

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """Check the spec."""
        yield from claimspecs.validate_class(item.get("spec") or {})

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Check the spec."""
        yield from claimspecs.validate_class(item.get("spec") or {})


class TaintRules(Strategy):
    """DeviceTaintRules."""

    def prepare_create(self, item: Json, call: Call) -> Json:
        """Set the taint's time."""
        return self._set_taint_time(super().prepare_create(item, call), call)

    def prepare_update(self, item: Json, old: Json, call: Call) -> Json:
        """Set the taint's time; a changed effect counts as a new taint."""
        item = super().prepare_update(item, old, call)
        taint, before = (
            (item.get("spec") or {}).get("taint") or {},
            (old.get("spec") or {}).get("taint") or {},
        )
        same_time = taint.get("timeAdded") == before.get("timeAdded")
        if taint.get("effect") != before.get("effect") and same_time:
            taint = {key: value for key, value in taint.items() if key != "timeAdded"}
            item = {**item, "spec": {**item["spec"], "taint": taint}}
        return self._set_taint_time(item, call)

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """Check the spec."""
        yield from taints.rule(item["spec"], self.profile.minor)

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Check the spec, or the status."""
        if call.subresource == "status":
            yield from taints.rule_status(item.get("status") or {})
        else:
            yield from taints.rule(item["spec"], self.profile.minor, old.get("spec") or {})

    @staticmethod
    def _set_taint_time(item: Json, call: Call) -> Json:
        spec = item.get("spec") or {}
        return {
            **item,
            "spec": {**spec, "taint": taints.set_time_added(spec.get("taint") or {}, now=call.now)},
        }
