"""The resources that a server serves before any CustomResourceDefinition is created, as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from drawbar.mocks.apiserver import classicresources, profiles, schemas, workloads
from drawbar.mocks.apiserver.resources import (
    ADMISSION_GROUP,
    CRD_GROUP,
    RBAC_GROUP,
    RESOURCE_GROUP,
    ResourceType,
)

_PODS_COUNTED = 34  # the minor version since which a pod has a metadata.generation (on by default)


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
        record="events.Event",
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
        subresources=("token",),
        unconditional=False,
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
        unconditional=False,
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
    unconditional=False,
    categories=("api-extensions",),
    subresources=("status",),
    schema=schemas.WITH_CONDITIONS,
    counts_generation=True,
    returns_object=True,
)


ADMISSION = (
    ResourceType(
        group=ADMISSION_GROUP,
        plural="validatingadmissionpolicies",
        singular="validatingadmissionpolicy",
        kind="ValidatingAdmissionPolicy",
        namespaced=False,
        categories=("api-extensions",),
        subresources=("status",),
        schema=schemas.WITH_CONDITIONS,
        counts_generation=True,
        unconditional=False,
    ),
    ResourceType(
        group=ADMISSION_GROUP,
        plural="validatingadmissionpolicybindings",
        singular="validatingadmissionpolicybinding",
        kind="ValidatingAdmissionPolicyBinding",
        namespaced=False,
        categories=("api-extensions",),
        counts_generation=True,
        unconditional=False,
    ),
)


def _rule_versions(profile: profiles.Profile) -> tuple[str, ...]:
    """Where DeviceTaintRules are served: by default since 1.37, before only if the gate is switched on.

    A real server also needs ``--runtime-config`` for the versions before ``v1``, which goes without saying
    here.
    """
    if profile.minor >= 37:
        return ("v1",) if profile.on(profiles.TAINT_RULES) else ()
    if profile.minor >= 36:
        return ("v1beta2", "v1alpha3") if profile.on(profiles.TAINT_RULES) else ()
    return ("v1alpha3",) if profile.on(profiles.TAINTS) else ()


def dynamic_resources(profile: profiles.Profile) -> tuple[ResourceType, ...]:
    """The ``resource.k8s.io`` resources that a release serves by default.

    Only ``v1``: the beta versions of slices and claims are off by default in every release imitated here.
    """
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
    versions = _rule_versions(profile)
    if versions:
        found.append(
            ResourceType(
                group=RESOURCE_GROUP,
                plural="devicetaintrules",
                singular="devicetaintrule",
                kind="DeviceTaintRule",
                namespaced=False,
                versions=versions,
                subresources=("status",),
                schema=schemas.WITH_CONDITIONS,
                counts_generation=True,
                returns_object=True,
                unconditional="v1" not in versions,
            )
        )
    return tuple(found)


def built_in(profile: profiles.Profile) -> tuple[ResourceType, ...]:
    """Everything that a server of this release serves before any CustomResourceDefinition is created."""
    dynamic = classicresources.of(profile) if profile.classic else dynamic_resources(profile)
    return (*_core(profile), *RBAC, *ADMISSION, DEFINITIONS, *dynamic, *workloads.WORKLOADS)


def _core(profile: profiles.Profile) -> Iterator[ResourceType]:
    for resource in CORE:
        if resource.plural == "pods" and profile.minor < _PODS_COUNTED:
            yield replace(resource, counts_generation=False)
        else:
            yield resource
