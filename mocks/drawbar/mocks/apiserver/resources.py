"""A resource: names, versions, selectable fields, structure; and the catalogue of served resources.

A resource is stored once and served in all its versions. A version may rename top-level fields (the two Event APIs
share their objects). Everything else is equal between the served versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from drawbar.mocks.apiserver import schemas
from drawbar.mocks.apiserver.rules import RuleTree
from drawbar.mocks.apiserver.schemas import Schema
from drawbar.mocks.apiserver.storage import StorageKey

Json = dict[str, Any]

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
RESOURCE_GROUP = "resource.k8s.io"
CRD_GROUP = "apiextensions.k8s.io"
RBAC_GROUP = "rbac.authorization.k8s.io"
ADMISSION_GROUP = "admissionregistration.k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceType:
    """One resource.

    Attributes:
        singular: its singular name; the default is the kind in lower case.
        versions: the served versions, preferred one first.
        fields: further selectable fields, and their dotted paths in stored objects.
        renames: the stored names of top-level fields, by version and served name.
        structural: the ``openAPIV3Schema`` of a custom resource, by version.
        rules: the CEL rules of a custom resource, by version.
        columns: the printer columns of a custom resource, by version.
        counts_generation: true if ``metadata.generation`` grows on changes outside metadata and status.
        create_on_update: true if a PUT to an absent object creates it.
        returns_object: true if a finished delete answers with the object instead of a Status.
        custom: true if a CustomResourceDefinition defines it.
        record: the name of the kind's type in the type table; empty for the kind itself.
        unconditional: true if an update without a resourceVersion is accepted.
    """

    group: str
    plural: str
    kind: str
    singular: str = ""
    namespaced: bool = True
    versions: tuple[str, ...] = ("v1",)
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    schema: Schema = schemas.PLAIN
    storage: StorageKey | None = None
    renames: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    structural: Mapping[str, Json] = field(default_factory=lambda: MappingProxyType({}))
    rules: Mapping[str, RuleTree | None] = field(default_factory=lambda: MappingProxyType({}))
    columns: Mapping[str, list[Json]] = field(default_factory=lambda: MappingProxyType({}))
    schemas_by_version: Mapping[str, Schema] = field(default_factory=lambda: MappingProxyType({}))
    counts_generation: bool = False
    create_on_update: bool = False
    returns_object: bool = False
    custom: bool = False
    record: str = ""
    unconditional: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "singular", self.singular or self.kind.lower())

    @property
    def where(self) -> StorageKey:
        """Return the key of the objects' collection."""
        return self.storage or (self.group, self.plural)

    @property
    def list_kind(self) -> str:
        """Return the kind of a list of these objects."""
        return f"{self.kind}List"

    def api_version(self, version: str) -> str:
        """Return ``group/version``, or the bare version in the core group."""
        return f"{self.group}/{version}" if self.group else version

    def merge_schema(self, version: str) -> Schema:
        """Return the merge structure in a version."""
        return self.schemas_by_version.get(version, self.schema)

    @property
    def record_name(self) -> str:
        """Return the name of the kind's type in the type table; all served versions share it."""
        return self.record or self.kind

    def field_paths(self) -> dict[str, str]:
        """Return every selectable field and its dotted path."""
        names = {"metadata.name": "metadata.name"}
        if self.namespaced:
            names["metadata.namespace"] = "metadata.namespace"
        return names | dict(self.fields)

    def convert_to_version(self, item: Json, version: str) -> Json:
        """Return a stored object in the form of a version."""
        return {
            "kind": self.kind,
            "apiVersion": self.api_version(version),
            **self.rename_fields(item, version),
        }

    def rename_fields(self, item: Json, version: str) -> Json:
        """Return a stored object with the field names of a version."""
        renames = self.renames.get(version)
        if not renames:
            return item
        back = {stored: name for name, stored in renames.items()}
        return {back.get(key, key): value for key, value in item.items()}

    def convert_to_stored(self, item: Json, version: str) -> Json:
        """Return an object of a version in its stored form."""
        renames = self.renames.get(version, {})
        return {
            renames.get(key, key): value for key, value in item.items() if key not in ("kind", "apiVersion")
        }


class Catalogue:
    """The served resources; custom ones come and go with their definitions."""

    def __init__(self, types: tuple[ResourceType, ...]) -> None:
        """Serve the built-in resources."""
        self._types: dict[tuple[str, str], ResourceType] = {(t.group, t.plural): t for t in types}
        self._groups: dict[str, list[str]] | None = None

    def all(self) -> list[ResourceType]:
        """Return every resource, in the order of registration."""
        return list(self._types.values())

    def find(self, group: str, version: str, plural: str) -> ResourceType | None:
        """Return the resource served at a path, or None."""
        resource = self._types.get((group, plural))
        return resource if resource is not None and version in resource.versions else None

    def get(self, group: str, plural: str) -> ResourceType:
        """Return the resource of that name, in any version.

        Raises:
            KeyError: it is not served.
        """
        return self._types[group, plural]

    def stored_at(self, where: StorageKey) -> ResourceType | None:
        """Return the resource that owns a collection, or None."""
        resource = self._types.get(where)
        return resource if resource is not None and resource.storage is None else None

    def register(self, resource: ResourceType) -> None:
        """Serve a custom resource, or its changed definition."""
        self._types[resource.group, resource.plural] = resource
        self._groups = None

    def unregister(self, group: str, plural: str) -> None:
        """Stop serving a custom resource."""
        self._types.pop((group, plural), None)
        self._groups = None

    def groups(self) -> dict[str, list[str]]:
        """Return each API group with its versions, preferred first; each request asks."""
        if self._groups is not None:
            return self._groups
        groups: dict[str, list[str]] = {}
        for resource in self._types.values():
            versions = groups.setdefault(resource.group, [])
            versions += [version for version in resource.versions if version not in versions]
        self._groups = groups
        return groups
