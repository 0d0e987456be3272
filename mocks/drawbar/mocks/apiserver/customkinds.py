"""CustomResourceDefinitions, and the objects of their kinds."""

# ruff: noqa: ARG002 - the methods of all strategies share one signature
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drawbar.mocks.apiserver import definitions, errors, rules, structural
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.strategies import Call, Strategy

Json = dict[str, Any]
_SELECTABLE_FIELDS_SINCE = 31  # the first minor version with the gate of selectable fields on by default


class Definitions(Strategy):
    """CustomResourceDefinitions: accepted and established at once."""

    def prepare_create(self, item: Json, call: Call) -> Json:
        """Set the defaults, and the status of a definition not yet accepted."""
        ready = definitions.prepare(self._drop_gated_fields(super().prepare_create(item, call)))
        return {**ready, "status": definitions.make_initial_status(ready)}

    def prepare_update(self, item: Json, old: Json, call: Call) -> Json:
        """Set the defaults."""
        return definitions.prepare(self._drop_gated_fields(super().prepare_update(item, old, call)))

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """Check the definition."""
        yield from definitions.validate(item)

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Check the definition; group, kind and scope are immutable."""
        yield from definitions.validate(item)
        for path in (("group",), ("scope",), ("names", "plural"), ("names", "kind")):
            new: Any = item["spec"]
            before: Any = old["spec"]
            for key in path:
                new, before = (new or {}).get(key), before[key]
            if new != before:
                yield errors.invalid_value(f"spec.{'.'.join(path)}", new, "field is immutable")

    def _drop_gated_fields(self, item: Json) -> Json:
        """Drop selectable fields in a release that has them behind a gate."""
        if self.profile.minor >= _SELECTABLE_FIELDS_SINCE or not _has_selectable_fields(item):
            return item
        versions = [
            {key: value for key, value in version.items() if key != "selectableFields"}
            for version in item["spec"]["versions"]
        ]
        return {**item, "spec": {**item["spec"], "versions": versions}}


class Custom(Strategy):
    """Objects of a CustomResourceDefinition."""

    def prepare_create(self, item: Json, call: Call) -> Json:
        """Prune and default."""
        return self._add_defaults(super().prepare_create(item, call), call)

    def prepare_update(self, item: Json, old: Json, call: Call) -> Json:
        """Prune and default."""
        return self._add_defaults(super().prepare_update(item, old, call), call)

    def validate_create(self, item: Json, call: Call) -> Iterator[Cause]:
        """Check the schema, and the CEL rules about one state."""
        yield from self._validate(item, call)

    def validate_update(self, item: Json, old: Json, call: Call) -> Iterator[Cause]:
        """Check the schema, and all CEL rules."""
        yield from self._validate(item, call, old)

    @staticmethod
    def _validate(item: Json, call: Call, *old: Json) -> Iterator[Cause]:
        broken = list(structural.validate(item, call.resource.structural[call.version]))
        yield from broken
        tree = call.resource.rules[call.version]
        yield from rules.find_blocking_error(broken, tree) or rules.validate(item, tree, *old)

    @staticmethod
    def _add_defaults(item: Json, call: Call) -> Json:
        return dict(structural.default(item, call.resource.structural[call.version]))


def _has_selectable_fields(definition: Json) -> bool:
    versions = (definition.get("spec") or {}).get("versions") or ()
    return any(version.get("selectableFields") for version in versions)
