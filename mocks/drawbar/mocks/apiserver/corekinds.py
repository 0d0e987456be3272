"""The kinds of the core groups with rules of their own."""

# ruff: noqa: ARG002 - the methods of all strategies share one signature
from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import errors, typechecking
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.strategies import Call, Strategy
from drawbar.mocks.apiserver.validation import admission, events, leases, podclaims

Json = dict[str, Any]
_NESTED_UNTIL = 30  # the last minor version in which a pod's claim has a ``source``
_FIXED = "field is immutable when `immutable` is set"


class Pods(Strategy):
    """Pods: the status starts as Pending."""

    def prepare_create(self, item: Json, call: Call) -> Json:
        """Set the API server's defaults that the kubelet relies on."""
        spec = {
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "schedulerName": "default-scheduler",
            "serviceAccountName": "default",
            **(item.get("spec") or {}),
        }
        return {**item, "spec": spec, "status": {"phase": "Pending", "qosClass": "BestEffort"}}

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """Check that a pod has a container, that each has a name, and that references to claims are complete."""
        containers = item["spec"].get("containers") or []
        if not containers:
            yield errors.required_value("spec.containers")
        for index, container in enumerate(containers):
            if not container.get("name"):
                yield errors.required_value(f"spec.containers[{index}].name")
        nested = self.profile.minor <= _NESTED_UNTIL
        yield from podclaims.validate(item["metadata"], item["spec"], nested=nested)

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Check that the node is unchanged; only a binding sets it."""
        if (item.get("spec") or {}).get("nodeName") != (old.get("spec") or {}).get("nodeName"):
            yield errors.forbidden_value(
                "spec", "pod updates may not change fields other than `spec.containers[*].image`"
            )


class Nodes(Strategy):
    """Nodes: a kubelet registers its own, including the status."""

    def prepare_create(self, item: Json, call: Call) -> Json:
        """Keep the status, unlike for other kinds."""
        return item


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


class ConfigMaps(Strategy):
    """ConfigMaps: an immutable one cannot change."""

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Check that an immutable object is unchanged."""
        if not old.get("immutable"):
            return
        if not item.get("immutable"):
            yield errors.forbidden_value("immutable", _FIXED)
        for key in ("data", "binaryData"):
            if (item.get(key) or {}) != (old.get(key) or {}):
                yield errors.forbidden_value(key, _FIXED)


class Secrets(ConfigMaps):
    """Secrets: ``stringData`` becomes ``data``, the type is fixed."""

    def prepare_create(self, item: Json, call: Call) -> Json:
        """Encode stringData, and default the type."""
        return self._encode_string_data({"type": "Opaque", **item})

    def prepare_update(self, item: Json, old: Json, call: Call) -> Json:
        """Encode stringData; an omitted type stays unchanged."""
        return self._encode_string_data({**item, "type": item.get("type") or old.get("type")})

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Check that the type, and an immutable object, are unchanged."""
        if item.get("type") != old.get("type"):
            yield errors.invalid_value("type", item.get("type"), "field is immutable")
        yield from super().validate_update(item, old, call)

    @staticmethod
    def _encode_string_data(item: Json) -> Json:
        plain = item.get("stringData")
        if not isinstance(plain, dict):
            return item
        data = {key: base64.b64encode(str(value).encode()).decode() for key, value in plain.items()}
        rest = {key: value for key, value in item.items() if key != "stringData"}
        return {**rest, "data": {**(item.get("data") or {}), **data}}


class RoleBindings(Strategy):
    """Bindings: the role is immutable."""

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """Check that a binding names a role."""
        reference = item.get("roleRef") or {}
        for key in ("kind", "name"):
            if not reference.get(key):
                yield errors.required_value(f"roleRef.{key}")

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Check that the role reference is unchanged."""
        if item.get("roleRef") != old.get("roleRef"):
            yield errors.invalid_value("roleRef", "object", "cannot change roleRef")


class Events(Strategy):
    """Events, of both API groups."""

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """Check the Event; the new API is strict."""
        yield from events.validate(item, strict=bool(call.resource.group))

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Check the Event; through the new API only its series may change."""
        yield from events.validate_update(item, old, strict=bool(call.resource.group))


class Leases(Strategy):
    """Leases."""

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """Check the spec."""
        yield from leases.validate(item.get("spec") or {})

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Check the spec."""
        yield from leases.validate(item.get("spec") or {})


class AdmissionPolicies(Strategy):
    """ValidatingAdmissionPolicies, with the type checker's status."""

    def prepare_create(self, item: Json, call: Call) -> Json:
        """Set the defaults, and the type checker's findings."""
        return self._add_type_checking(
            {**item, "spec": admission.add_policy_defaults(item.get("spec") or {})}, 1
        )

    def prepare_update(self, item: Json, old: Json, call: Call) -> Json:
        """Set the defaults, and the findings for a changed spec."""
        item = super().prepare_update(item, old, call)
        item = {**item, "spec": admission.add_policy_defaults(item.get("spec") or {})}
        if item["spec"] == old["spec"]:
            return item
        return self._add_type_checking(item, old["metadata"]["generation"] + 1)

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """Check the spec."""
        yield from admission.check_policy(item["spec"])

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Check the spec."""
        yield from admission.check_policy(item["spec"])

    def _add_type_checking(self, item: Json, generation: int) -> Json:
        if any(admission.check_policy(item["spec"])):
            return item
        status = typechecking.status(item["spec"], self.profile, self._store, generation=generation)
        return {**item, "status": status}


class AdmissionBindings(Strategy):
    """ValidatingAdmissionPolicyBindings."""

    def prepare_create(self, item: Json, call: Call) -> Json:
        """Set the defaults."""
        return {**item, "spec": admission.add_binding_defaults(item.get("spec") or {})}

    def prepare_update(self, item: Json, old: Json, call: Call) -> Json:
        """Set the defaults."""
        return self.prepare_create(item, call)

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """Check the spec."""
        yield from admission.check_binding(item["spec"])

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Check the spec."""
        yield from admission.check_binding(item["spec"])
