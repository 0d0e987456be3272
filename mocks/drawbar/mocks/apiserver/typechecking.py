"""The content of `status.typeChecking` of a ValidatingAdmissionPolicy: unknown fields of matched kinds.

In a cluster a controller writes it some time after the policy; here it is there at once. Types come from rules that
name their groups, versions and resources. Rules with ``*`` are not checked, as in a real server. Limits: no types of
values, variables and macros (`celchecks` follows only the fields of ``object`` and ``oldObject``), and no limit of ten
types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from drawbar.mocks.apiserver import builtin, celchecks, definitions, openapi
from drawbar.mocks.apiserver.profiles import Profile
from drawbar.mocks.apiserver.resources import Catalogue, ResourceType
from drawbar.mocks.apiserver.storage import Store

Json = dict[str, Any]


def status(spec: Json, profile: Profile, store: Store, *, generation: int) -> Json:
    """Return the status of a policy with a valid spec."""
    catalogue = Catalogue(builtin.built_in(profile))
    for definition in store.collection(builtin.DEFINITIONS.where).items.values():
        catalogue.register(definitions.resource(definition))
    kinds = sorted(_kinds(spec, catalogue), key=lambda kind: (kind[0].group, kind[1], kind[0].kind))
    schemas = {(kind.where, version): _schemas(catalogue, kind, version, profile) for kind, version in kinds}
    warnings = []
    for index, validation in enumerate(spec.get("validations") or ()):
        for key, wanted in (("expression", "bool"), ("messageExpression", "string")):
            problems = [
                f"{kind.group}/{version}, Kind={kind.kind}: {problem}"
                for kind, version in kinds
                if validation.get(key)
                for problem in [_problem(validation[key], wanted, schemas[kind.where, version])]
                if problem
            ]
            if problems:
                warnings.append(
                    {"fieldRef": f"spec.validations[{index}].{key}", "warning": "\n".join(problems)}
                )
    checked = {"expressionWarnings": warnings} if warnings else {}
    return {"observedGeneration": generation, "typeChecking": checked}


def _kinds(spec: Json, catalogue: Catalogue) -> Iterator[tuple[ResourceType, str]]:
    passed = set()
    for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
        if any("*" in name for key in ("apiGroups", "apiVersions") for name in rule[key]):
            continue
        for group in rule["apiGroups"]:
            for version in rule["apiVersions"]:
                for plural in rule["resources"]:
                    resource = catalogue.find(group, version, plural)
                    if resource is not None and (group, version, plural) not in passed:
                        passed.add((group, version, plural))
                        yield resource, version


def _schemas(
    catalogue: Catalogue, kind: ResourceType, version: str, profile: Profile
) -> tuple[Json, Mapping[str, Json]]:
    """Return the schema of a kind, and the schemas it refers to."""
    components = openapi.document(catalogue, kind.group, version, profile)["components"]["schemas"]
    for schema in components.values():
        for named in schema.get("x-kubernetes-group-version-kind") or ():
            if (named["version"], named["kind"]) == (version, kind.kind):
                return schema, components
    return {}, components


def _problem(text: str, wanted: str, schemas: tuple[Json, Mapping[str, Json]]) -> str | None:
    schema, components = schemas
    variables = {**celchecks.ADMISSION, "variables": {}, "object": schema, "oldObject": schema}
    return celchecks.problem(text, variables, wanted=wanted, components=components)
