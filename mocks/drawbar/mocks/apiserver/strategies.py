"""What each kind does before it is stored: which part a request may change, defaults, and rules.

``Strategy`` is the common behaviour (status separate from the rest where there is a status subresource);
the subclasses add one kind's own rules.  A strategy works on stored objects (without apiVersion and kind)
and never changes its arguments.
"""

# ruff: noqa: ARG002 - the methods of all strategies share one signature
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from drawbar.mocks.apiserver import definitions, errors, profiles, rbac, rules, structural
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.profiles import Profile
from drawbar.mocks.apiserver.resources import CRD_GROUP, RBAC_GROUP, RESOURCE_GROUP, ResourceType
from drawbar.mocks.apiserver.validation import claims, slices

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, as far as writing an object depends on it.

    ``verb`` is that of the request (``create``, ``update``, ``patch``...), ``now`` an RFC 3339 time stamp.
    """

    resource: ResourceType
    version: str
    user: rbac.User
    verb: str
    now: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    manager: str = ""
    dry_run: bool = False
    strict: bool = False


class Strategy:
    """The behaviour of a kind without rules of its own."""

    def __init__(self, profile: Profile, authorizer: rbac.Authorizer) -> None:
        """Imitate ``profile``; ``authorizer`` answers rules that ask for extra permissions."""
        self.profile = profile
        self.authorizer = authorizer

    def malformed(self, item: Json, call: Call) -> str | None:
        """Why an object cannot be decoded, or None."""
        for key in ("spec", "status"):
            if item.get(key) is not None and not isinstance(item[key], dict):
                return f"{key} must be an object"
        return None

    def prepare_create(self, item: Json, call: Call) -> Json:
        """The object as it goes to validation on a creation."""
        if "status" in call.resource.subresources and "status" in item:
            return {key: value for key, value in item.items() if key != "status"}
        return item

    def prepare_update(self, item: Json, old: Json, call: Call) -> Json:
        """The object as it goes to validation on an update: what the request may not change is put back."""
        if call.subresource == "status":
            kept = {**old, "metadata": self._status_metadata(item["metadata"], old["metadata"], call)}
            return _with(kept, "status", item.get("status"))
        if "status" in call.resource.subresources:
            return _with(item, "status", old.get("status"))
        return item

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """Rules that a new object breaks."""
        yield from ()

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Rules that an update breaks."""
        yield from ()

    def _status_metadata(self, new: Json, old: Json, call: Call) -> Json:
        """A status update changes no metadata, but its uid and resourceVersion still are preconditions."""
        kept = dict(old)
        for key in ("uid", "resourceVersion", "name", "namespace"):
            if new.get(key) is not None:
                kept[key] = new[key]
        if call.resource.group != RESOURCE_GROUP and not call.resource.custom:
            for key in ("labels", "annotations"):  # built-in kinds let a status update change these
                kept = _with(kept, key, new.get(key))
        return kept


class Pods(Strategy):
    """Pods: the status starts as Pending."""

    def prepare_create(self, item: Json, call: Call) -> Json:
        """Set what the API server defaults and the kubelet relies on."""
        spec = {
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "schedulerName": "default-scheduler",
            "serviceAccountName": "default",
            **(item.get("spec") or {}),
        }
        return {**item, "spec": spec, "status": {"phase": "Pending", "qosClass": "BestEffort"}}

    def malformed(self, item: Json, call: Call) -> str | None:
        """Containers are what everybody reads."""
        containers = (
            (item.get("spec") or {}).get("containers") if isinstance(item.get("spec"), dict) else None
        )
        if containers is not None and not (
            isinstance(containers, list) and all(isinstance(c, dict) for c in containers)
        ):
            return "spec.containers must be a list of objects"
        return super().malformed(item, call)

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """A pod has at least one container, each with a name."""
        containers = item["spec"].get("containers") or []
        if not containers:
            yield errors.required("spec.containers")
        for index, container in enumerate(containers):
            if not container.get("name"):
                yield errors.required(f"spec.containers[{index}].name")

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """A node is set by binding, and never again."""
        if (item.get("spec") or {}).get("nodeName") != (old.get("spec") or {}).get("nodeName"):
            yield errors.forbidden_value(
                "spec", "pod updates may not change fields other than `spec.containers[*].image`"
            )


class Namespaces(Strategy):
    """Namespaces start Active."""

    def prepare_create(self, item: Json, call: Call) -> Json:
        """Set the phase, the finalizer and the name label."""
        metadata = item["metadata"]
        labels = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
        return {
            **item,
            "metadata": {**metadata, "labels": labels},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        }


class Secrets(Strategy):
    """Secrets: ``stringData`` becomes ``data``."""

    def prepare_create(self, item: Json, call: Call) -> Json:
        """Encode stringData, default the type."""
        return self._encoded({"type": "Opaque", **item})

    def prepare_update(self, item: Json, old: Json, call: Call) -> Json:
        """Encode stringData."""
        return self._encoded(item)

    @staticmethod
    def _encoded(item: Json) -> Json:
        import base64

        plain = item.get("stringData")
        if not isinstance(plain, dict):
            return item
        data = {key: base64.b64encode(str(value).encode()).decode() for key, value in plain.items()}
        rest = {key: value for key, value in item.items() if key != "stringData"}
        return {**rest, "data": {**(item.get("data") or {}), **data}}


class RoleBindings(Strategy):
    """Bindings: the role never changes."""

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """A binding names a role."""
        reference = item.get("roleRef") or {}
        for key in ("kind", "name"):
            if not reference.get(key):
                yield errors.required(f"roleRef.{key}")

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """The role reference is fixed."""
        if item.get("roleRef") != old.get("roleRef"):
            yield errors.invalid_value("roleRef", "object", "cannot change roleRef")


class Claims(Strategy):
    """ResourceClaims, with the extra permissions that a change of status needs since 1.36."""

    def malformed(self, item: Json, call: Call) -> str | None:
        """Check the types that the rules rely on."""
        return super().malformed(item, call) or claims.malformed(item.get("status") or {})

    def prepare_update(self, item: Json, old: Json, call: Call) -> Json:
        """Clear the device entries of a taken-away allocation, and the fields of gates that are off."""
        item = super().prepare_update(item, old, call)
        if call.subresource != "status":
            return item
        before = old.get("status") or {}
        status = claims.drop_deallocated(item.get("status") or {}, before)
        return {**item, "status": claims.drop_disabled(status, before, self.profile)}

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """The spec."""
        yield from claims.validate_spec(item.get("spec") or {})

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """The spec is immutable; a new status is checked and authorized."""
        yield from claims.immutable_spec(item.get("spec") or {}, old.get("spec") or {})
        if call.subresource == "status":
            status, before = item.get("status") or {}, old.get("status") or {}
            if self.profile.on(profiles.GRANULAR_STATUS):
                yield from self._unauthorized(status, before, call)
            yield from claims.validate_status(status, before)

    def _unauthorized(self, status: Json, before: Json, call: Call) -> Iterator[Cause]:
        if any(status.get(key) != before.get(key) for key in ("allocation", "reservedFor")):
            wanted = rbac.Attributes(
                verb=call.verb, group=RESOURCE_GROUP, resource="resourceclaims", subresource="binding"
            )
            if not self.authorizer.allows(call.user, wanted):
                text = (
                    "changing status.allocation or status.reservedFor requires "
                    f'resource="resourceclaims/binding", verb="{call.verb}" permission: '
                )
                yield errors.forbidden_value("status", text + self._denied(call, wanted))
        node = claims.allocated_node(status)
        own = bool(node) and call.user.node == node
        verbs = [f"arbitrary-node:{call.verb}"]
        if own:
            verbs.insert(0, f"associated-node:{call.verb}")
        for driver in claims.modified_drivers(status, before):
            wishes = [
                rbac.Attributes(
                    verb=verb,
                    group=RESOURCE_GROUP,
                    resource="resourceclaims",
                    subresource="driver",
                    namespace=call.namespace,
                    name=driver,
                )
                for verb in verbs
            ]
            if not any(self.authorizer.allows(call.user, wanted) for wanted in wishes):
                text = (
                    'changing status.devices requires resource="resourceclaims/driver", '
                    f'verb="[{" ".join(verbs)}]" permission: '
                )
                yield errors.forbidden_value("status.devices", text + self._denied(call, wishes[0]))

    @staticmethod
    def _denied(call: Call, wanted: rbac.Attributes) -> str:
        plural = "resourceclaims"
        return errors.forbidden(plural, RESOURCE_GROUP, wanted.name, rbac.refusal(call.user, wanted)).message


class Slices(Strategy):
    """ResourceSlices."""

    def malformed(self, item: Json, call: Call) -> str | None:
        """Check the types that the rules rely on."""
        return slices.malformed(item.get("spec") or {})

    def prepare_create(self, item: Json, call: Call) -> Json:
        """Drop fields of gates that are off, then stamp taints."""
        spec = slices.drop_disabled(item.get("spec") or {}, None, self.profile)
        return {**item, "spec": slices.default_taints(spec, now=call.now)}

    def prepare_update(self, item: Json, old: Json, call: Call) -> Json:
        """The same; fields that are in use already are kept."""
        spec = slices.drop_disabled(item.get("spec") or {}, old.get("spec"), self.profile)
        return {**item, "spec": slices.default_taints(spec, now=call.now)}

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """The spec."""
        yield from slices.validate(item["spec"])

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """The spec, and what in it is immutable."""
        yield from slices.validate(item["spec"], old.get("spec") or {})


class Definitions(Strategy):
    """CustomResourceDefinitions: accepted and established at once."""

    def malformed(self, item: Json, call: Call) -> str | None:
        """Check the types that the rules rely on."""
        spec = item.get("spec") or {}
        versions = spec.get("versions") if isinstance(spec, dict) else None
        if not isinstance(spec, dict) or not isinstance(spec.get("names") or {}, dict):
            return "spec and spec.names must be objects"
        if not isinstance(versions, list) or not all(isinstance(version, dict) for version in versions):
            return "spec.versions must be a list of objects"
        return None

    def prepare_create(self, item: Json, call: Call) -> Json:
        """Defaults; the status is computed after validation."""
        return definitions.prepare(super().prepare_create(item, call))

    def prepare_update(self, item: Json, old: Json, call: Call) -> Json:
        """Defaults."""
        return definitions.prepare(super().prepare_update(item, old, call))

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """The definition."""
        yield from definitions.validate(item)

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """The definition, whose group, kind and scope never change."""
        yield from definitions.validate(item)
        for path in (("group",), ("scope",), ("names", "plural"), ("names", "kind")):
            new: Any = item["spec"]
            before: Any = old["spec"]
            for key in path:
                new, before = (new or {}).get(key), before[key]
            if new != before:
                yield errors.invalid_value(f"spec.{'.'.join(path)}", new, "field is immutable")


class Custom(Strategy):
    """Objects of a CustomResourceDefinition."""

    def malformed(self, item: Json, call: Call) -> str | None:
        """Types are the schema's business."""
        return None

    def prepare_create(self, item: Json, call: Call) -> Json:
        """Prune and default."""
        return self._shaped(super().prepare_create(item, call), call)

    def prepare_update(self, item: Json, old: Json, call: Call) -> Json:
        """Prune and default."""
        return self._shaped(super().prepare_update(item, old, call), call)

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """The schema, and CEL rules about one state."""
        schema = call.resource.structural[call.version]
        broken = list(structural.validate(item, schema))
        yield from broken
        if not broken:
            yield from rules.validate(item, schema)

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """The schema, and all CEL rules."""
        schema = call.resource.structural[call.version]
        broken = list(structural.validate(item, schema))
        yield from broken
        if not broken:
            yield from rules.validate(item, schema, old)

    @staticmethod
    def _shaped(item: Json, call: Call) -> Json:
        schema = call.resource.structural[call.version]
        pruned, dropped = structural.prune(item, schema)
        if dropped and call.strict:
            text = ", ".join(f'unknown field "{path}"' for path in dropped)
            raise errors.bad_request(
                f'{call.resource.kind} in version "{call.version}" cannot be handled as a '
                f"{call.resource.kind}: strict decoding error: {text}"
            )
        return dict(structural.default(pruned, schema))


_BY_RESOURCE: dict[tuple[str, str], type[Strategy]] = {
    ("", "pods"): Pods,
    ("", "namespaces"): Namespaces,
    ("", "secrets"): Secrets,
    (RBAC_GROUP, "rolebindings"): RoleBindings,
    (RBAC_GROUP, "clusterrolebindings"): RoleBindings,
    (RESOURCE_GROUP, "resourceclaims"): Claims,
    (RESOURCE_GROUP, "resourceslices"): Slices,
    (CRD_GROUP, "customresourcedefinitions"): Definitions,
}


def strategy_for(resource: ResourceType, profile: Profile, authorizer: rbac.Authorizer) -> Strategy:
    """The behaviour of a resource."""
    kind = Custom if resource.custom else _BY_RESOURCE.get((resource.group, resource.plural), Strategy)
    return kind(profile, authorizer)


def _with(item: Json, key: str, value: Any) -> Json:
    rest = {name: held for name, held in item.items() if name != key}
    return rest if value is None else {**rest, key: value}
