"""The resources that are served, as data: names, versions, selectable fields, structure.

A resource is stored once and served in all its versions.  A version may rename top-level fields (the two
Event APIs share their objects); everything else is equal between the versions served here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from drawbar.mocks.apiserver import profiles, schemas
from drawbar.mocks.apiserver.schemas import Schema
from drawbar.mocks.apiserver.storage import StorageKey

Json = dict[str, Any]

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
RESOURCE_GROUP = "resource.k8s.io"
CRD_GROUP = "apiextensions.k8s.io"
RBAC_GROUP = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceType:
    """One resource.

    Attributes:
        versions: the served versions, preferred one first.
        fields: selectable fields beyond the name, and their dotted paths in stored objects.
        renames: per version, served name to stored name of top-level fields.
        structural: per version, the ``openAPIV3Schema`` of a custom resource.
        columns: per version, the printer columns of a custom resource.
        counts_generation: ``metadata.generation`` grows when anything but metadata and status changes.
        create_on_update: a PUT to an absent object creates it.
        returns_object: a finished delete answers with the object instead of a Status.
        custom: defined by a CustomResourceDefinition.
    """

    group: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    versions: tuple[str, ...] = ("v1",)
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    schema: Schema = schemas.PLAIN
    storage: StorageKey | None = None
    renames: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    structural: Mapping[str, Json] = field(default_factory=lambda: MappingProxyType({}))
    columns: Mapping[str, list[Json]] = field(default_factory=lambda: MappingProxyType({}))
    schemas_by_version: Mapping[str, Schema] = field(default_factory=lambda: MappingProxyType({}))
    counts_generation: bool = False
    create_on_update: bool = False
    returns_object: bool = False
    custom: bool = False

    @property
    def where(self) -> StorageKey:
        """The collection that holds the objects."""
        return self.storage or (self.group, self.plural)

    @property
    def list_kind(self) -> str:
        """The kind of a list of these objects."""
        return f"{self.kind}List"

    def api_version(self, version: str) -> str:
        """``group/version``, or the bare version in the core group."""
        return f"{self.group}/{version}" if self.group else version

    def merge_schema(self, version: str) -> Schema:
        """The merge structure in a version."""
        return self.schemas_by_version.get(version, self.schema)

    def field_paths(self) -> dict[str, str]:
        """Every selectable field and its dotted path."""
        names = {"metadata.name": "metadata.name"}
        if self.namespaced:
            names["metadata.namespace"] = "metadata.namespace"
        return names | dict(self.fields)

    def served(self, item: Json, version: str) -> Json:
        """A stored object as a version shows it."""
        renames = self.renames.get(version)
        if renames:
            back = {stored: name for name, stored in renames.items()}
            item = {back.get(key, key): value for key, value in item.items()}
        return {"kind": self.kind, "apiVersion": self.api_version(version), **item}

    def stored(self, item: Json, version: str) -> Json:
        """An object of a version as it is stored."""
        renames = self.renames.get(version, {})
        return {
            renames.get(key, key): value for key, value in item.items() if key not in ("kind", "apiVersion")
        }


def _same(*names: str) -> Mapping[str, str]:
    return MappingProxyType({name: name for name in names})


_EVENT_FIELDS = (
    *(
        f"involvedObject.{key}"
        for key in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    ),
    "reason",
    "type",
)
_EVENT_RENAMES = MappingProxyType(
    {
        "regarding": "involvedObject",
        "note": "message",
        "reportingController": "reportingComponent",
        "deprecatedSource": "source",
        "deprecatedFirstTimestamp": "firstTimestamp",
        "deprecatedLastTimestamp": "lastTimestamp",
        "deprecatedCount": "count",
    }
)

CORE = (
    ResourceType(
        group="",
        plural="namespaces",
        singular="namespace",
        kind="Namespace",
        namespaced=False,
        short_names=("ns",),
        subresources=("status",),
        fields=_same("status.phase"),
        schema=schemas.WITH_CONDITIONS,
        returns_object=True,
    ),
    ResourceType(
        group="",
        plural="nodes",
        singular="node",
        kind="Node",
        namespaced=False,
        short_names=("no",),
        subresources=("status",),
        fields=_same("spec.unschedulable"),
        schema=schemas.NODE,
    ),
    ResourceType(
        group="",
        plural="pods",
        singular="pod",
        kind="Pod",
        namespaced=True,
        short_names=("po",),
        categories=("all",),
        subresources=("status", "binding"),
        fields=_same(
            "spec.nodeName",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.nominatedNodeName",
        ),
        schema=schemas.POD,
        returns_object=True,
        counts_generation=True,
    ),
    ResourceType(
        group="",
        plural="events",
        singular="event",
        kind="Event",
        namespaced=True,
        short_names=("ev",),
        fields=MappingProxyType(
            {
                **_same(*_EVENT_FIELDS),
                "source": "source.component",
                "reportingComponent": "reportingComponent",
            }
        ),
        create_on_update=True,
    ),
    ResourceType(
        group="events.k8s.io",
        plural="events",
        singular="event",
        kind="Event",
        namespaced=True,
        short_names=("ev",),
        fields=MappingProxyType(
            {
                **{key.replace("involvedObject", "regarding"): key for key in _EVENT_FIELDS},
                "reportingController": "reportingComponent",
            }
        ),
        storage=("", "events"),
        renames=MappingProxyType({"v1": _EVENT_RENAMES}),
        create_on_update=True,
    ),
    ResourceType(
        group="",
        plural="serviceaccounts",
        singular="serviceaccount",
        kind="ServiceAccount",
        namespaced=True,
        short_names=("sa",),
        returns_object=True,
    ),
    ResourceType(
        group="",
        plural="configmaps",
        singular="configmap",
        kind="ConfigMap",
        namespaced=True,
        short_names=("cm",),
    ),
    ResourceType(
        group="",
        plural="secrets",
        singular="secret",
        kind="Secret",
        namespaced=True,
        fields=_same("type"),
    ),
    ResourceType(
        group="coordination.k8s.io",
        plural="leases",
        singular="lease",
        kind="Lease",
        namespaced=True,
        create_on_update=True,
    ),
)


def _rbac(plural: str, kind: str, *, namespaced: bool) -> ResourceType:
    return ResourceType(
        group=RBAC_GROUP,
        plural=plural,
        singular=kind.lower(),
        kind=kind,
        namespaced=namespaced,
        create_on_update=True,
    )


RBAC = (
    _rbac("roles", "Role", namespaced=True),
    _rbac("rolebindings", "RoleBinding", namespaced=True),
    _rbac("clusterroles", "ClusterRole", namespaced=False),
    _rbac("clusterrolebindings", "ClusterRoleBinding", namespaced=False),
)

DEFINITIONS = ResourceType(
    group=CRD_GROUP,
    plural="customresourcedefinitions",
    singular="customresourcedefinition",
    kind="CustomResourceDefinition",
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    subresources=("status",),
    schema=schemas.WITH_CONDITIONS,
    counts_generation=True,
    returns_object=True,
)


def dynamic_resources(profile: profiles.Profile) -> tuple[ResourceType, ...]:
    """The ``resource.k8s.io`` resources that a release serves by default."""
    slice_fields = ["spec.nodeName", "spec.driver"] + (["spec.pool.name"] if profile.minor >= 37 else [])
    found = [
        ResourceType(
            group=RESOURCE_GROUP,
            plural="resourceclaims",
            singular="resourceclaim",
            kind="ResourceClaim",
            namespaced=True,
            subresources=("status",),
            schema=schemas.CLAIM,
            returns_object=True,
        ),
        ResourceType(
            group=RESOURCE_GROUP,
            plural="resourceclaimtemplates",
            singular="resourceclaimtemplate",
            kind="ResourceClaimTemplate",
            namespaced=True,
            returns_object=True,
        ),
        ResourceType(
            group=RESOURCE_GROUP,
            plural="resourceslices",
            singular="resourceslice",
            kind="ResourceSlice",
            namespaced=False,
            fields=_same(*slice_fields),
            schema=schemas.SLICE,
            counts_generation=True,
            returns_object=True,
        ),
        ResourceType(
            group=RESOURCE_GROUP,
            plural="deviceclasses",
            singular="deviceclass",
            kind="DeviceClass",
            namespaced=False,
            counts_generation=True,
            returns_object=True,
        ),
    ]
    if profile.on(profiles.TAINT_RULES):
        found.append(
            ResourceType(
                group=RESOURCE_GROUP,
                plural="devicetaintrules",
                singular="devicetaintrule",
                kind="DeviceTaintRule",
                namespaced=False,
                versions=("v1", "v1beta2") if profile.minor >= 37 else ("v1beta2",),
                subresources=("status",),
                schema=schemas.WITH_CONDITIONS,
                counts_generation=True,
                returns_object=True,
            )
        )
    return tuple(found)


def built_in(profile: profiles.Profile) -> tuple[ResourceType, ...]:
    """Everything that a server of this release serves before any CustomResourceDefinition is created."""
    return (*CORE, *RBAC, DEFINITIONS, *dynamic_resources(profile))


class Catalogue:
    """The resources served now; custom ones come and go with their definitions."""

    def __init__(self, types: tuple[ResourceType, ...]) -> None:
        """Serve the built-in resources."""
        self._types: dict[tuple[str, str], ResourceType] = {(t.group, t.plural): t for t in types}

    def all(self) -> list[ResourceType]:
        """Every resource, in the order of registration."""
        return list(self._types.values())

    def find(self, group: str, version: str, plural: str) -> ResourceType | None:
        """The resource served at a path, or None."""
        found = self._types.get((group, plural))
        return found if found is not None and version in found.versions else None

    def get(self, group: str, plural: str) -> ResourceType:
        """The resource of that name in whatever version.

        Raises:
            KeyError: it is not served.
        """
        return self._types[group, plural]

    def register(self, resource: ResourceType) -> None:
        """Serve a custom resource, or its changed definition."""
        self._types[resource.group, resource.plural] = resource

    def unregister(self, group: str, plural: str) -> None:
        """Stop serving a custom resource."""
        self._types.pop((group, plural), None)

    def groups(self) -> dict[str, list[str]]:
        """Each API group and its versions, preferred first."""
        found: dict[str, list[str]] = {}
        for resource in self._types.values():
            versions = found.setdefault(resource.group, [])
            versions += [version for version in resource.versions if version not in versions]
        return found
