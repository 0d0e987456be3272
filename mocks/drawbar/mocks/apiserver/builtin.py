"""The resources of a server before any CustomResourceDefinition, as data."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from drawbar.mocks.apiserver import profiles, schemas
from drawbar.mocks.apiserver.resources import (
    ADMISSION_GROUP,
    CRD_GROUP,
    RBAC_GROUP,
    RESOURCE_GROUP,
    ResourceType,
)

_PODS_COUNTED = 34  # the minor version since which a pod has a metadata.generation (on by default)


def _make_fields(*names: str) -> Mapping[str, str]:
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

BUDGETS = ResourceType(
    group="policy",
    plural="poddisruptionbudgets",
    kind="PodDisruptionBudget",
    short_names=("pdb",),
    subresources=("status",),
    schema=schemas.WITH_CONDITIONS,
    counts_generation=True,
)
CORE = (
    ResourceType(
        group="",
        plural="namespaces",
        kind="Namespace",
        namespaced=False,
        short_names=("ns",),
        subresources=("status",),
        fields=_make_fields("status.phase"),
        schema=schemas.WITH_CONDITIONS,
        returns_object=True,
    ),
    ResourceType(
        group="",
        plural="nodes",
        kind="Node",
        namespaced=False,
        short_names=("no",),
        subresources=("status",),
        fields=_make_fields("spec.unschedulable"),
        schema=schemas.NODE,
    ),
    ResourceType(
        group="",
        plural="pods",
        kind="Pod",
        short_names=("po",),
        categories=("all",),
        subresources=("status", "binding", "eviction"),
        fields=_make_fields(
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
        kind="Event",
        short_names=("ev",),
        fields=MappingProxyType(
            {
                **_make_fields(*_EVENT_FIELDS),
                "source": "source.component",
                "reportingComponent": "reportingComponent",
            }
        ),
        create_on_update=True,
    ),
    ResourceType(
        group="events.k8s.io",
        plural="events",
        kind="Event",
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
        kind="ServiceAccount",
        short_names=("sa",),
        subresources=("token",),
        unconditional=False,
        returns_object=True,
    ),
    ResourceType(
        group="",
        plural="configmaps",
        kind="ConfigMap",
        short_names=("cm",),
    ),
    ResourceType(
        group="",
        plural="secrets",
        kind="Secret",
        fields=_make_fields("type"),
    ),
    BUDGETS,
    ResourceType(
        group="coordination.k8s.io",
        plural="leases",
        kind="Lease",
        unconditional=False,
        create_on_update=True,
    ),
)


_rbac = functools.partial(ResourceType, group=RBAC_GROUP, create_on_update=True)
RBAC = (
    _rbac(plural="roles", kind="Role"),
    _rbac(plural="rolebindings", kind="RoleBinding"),
    _rbac(plural="clusterroles", kind="ClusterRole", namespaced=False),
    _rbac(plural="clusterrolebindings", kind="ClusterRoleBinding", namespaced=False),
)

DEFINITIONS = ResourceType(
    group=CRD_GROUP,
    plural="customresourcedefinitions",
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
        kind="ValidatingAdmissionPolicyBinding",
        namespaced=False,
        categories=("api-extensions",),
        counts_generation=True,
        unconditional=False,
    ),
)


_dynamic = functools.partial(ResourceType, group=RESOURCE_GROUP, returns_object=True)


_CLASSIC_CLAIM = schemas.record(
    metadata=schemas.METADATA,
    spec=schemas.record(parametersRef=schemas.OPEN),
    status=schemas.record(
        allocation=schemas.record(availableOnNodes=schemas.ATOMIC, nodeSelector=schemas.ATOMIC),
        reservedFor=schemas.keyed_list("uid"),
    ),
)
_CLASSIC_CONTEXT = schemas.record(
    metadata=schemas.METADATA,
    # Strategic merge replaces this list, because the type has no patch key.
    status=schemas.record(resourceClaims=schemas.keyed_list("name", strategic="")),
)
_CLASSIC_CLASS = schemas.record(
    metadata=schemas.METADATA,
    suitableNodes=schemas.ATOMIC,
    spec=schemas.record(suitableNodes=schemas.ATOMIC),
)


def _rule_versions(profile: profiles.Profile) -> tuple[str, ...]:
    """Return the served versions of DeviceTaintRules: by default since 1.37, before only with the gate on.

    A real server also needs ``--runtime-config`` for the versions before ``v1``; the double does not.
    """
    if profile.minor >= 37:
        return ("v1",) if profile.is_on(profiles.TAINT_RULES) else ()
    if profile.minor >= 36:
        return ("v1beta2", "v1alpha3") if profile.is_on(profiles.TAINT_RULES) else ()
    return ("v1alpha3",) if profile.is_on(profiles.TAINTS) else ()


def dynamic_resources(profile: profiles.Profile) -> tuple[ResourceType, ...]:
    """Return the ``resource.k8s.io`` resources served by a release by default.

    They are in ``v1`` only: the beta versions of slices and claims are off by default in every imitated release.
    """
    slice_fields = ["spec.nodeName", "spec.driver"] + (["spec.pool.name"] if profile.minor >= 37 else [])
    kinds = [
        _dynamic(
            plural="resourceclaims",
            kind="ResourceClaim",
            subresources=("status",),
            schema=schemas.CLAIM,
        ),
        _dynamic(
            plural="resourceclaimtemplates",
            kind="ResourceClaimTemplate",
        ),
        _dynamic(
            plural="resourceslices",
            kind="ResourceSlice",
            namespaced=False,
            fields=_make_fields(*slice_fields),
            schema=schemas.SLICE,
            counts_generation=True,
        ),
        _dynamic(
            plural="deviceclasses",
            kind="DeviceClass",
            namespaced=False,
            counts_generation=True,
        ),
    ]
    versions = _rule_versions(profile)
    if versions:
        kinds.append(
            _dynamic(
                plural="devicetaintrules",
                kind="DeviceTaintRule",
                namespaced=False,
                versions=versions,
                subresources=("status",),
                schema=schemas.WITH_CONDITIONS,
                counts_generation=True,
                unconditional="v1" not in versions,
            )
        )
    return tuple(kinds)


def classic_resources(profile: profiles.Profile) -> tuple[ResourceType, ...]:
    """Return the ``resource.k8s.io`` resources of 1.30 (``v1alpha2``) and 1.31 (``v1alpha3``).

    Each of these releases serves only one version of the group, so a client of ``v1`` finds nothing there.
    Limit: no ResourceSlices and no parameters of claims and classes, because a driver's controller does not use them.
    """
    version = profile.dynamic_version
    kind = functools.partial(_dynamic, versions=(version,))
    counted = functools.partial(kind, counts_generation=True)
    kinds = (
        kind(plural="resourceclaims", kind="ResourceClaim", schema=_CLASSIC_CLAIM, subresources=("status",)),
        kind(plural="resourceclaimtemplates", kind="ResourceClaimTemplate"),
        kind(
            plural="podschedulingcontexts",
            kind="PodSchedulingContext",
            schema=_CLASSIC_CONTEXT,
            subresources=("status",),
        ),
    )
    if version == "v1alpha2":
        return (
            *kinds,
            counted(plural="resourceclasses", kind="ResourceClass", schema=_CLASSIC_CLASS, namespaced=False),
        )
    return (
        *kinds,
        counted(plural="deviceclasses", kind="DeviceClass", schema=_CLASSIC_CLASS, namespaced=False),
    )


# Further kinds of charts. They are stored, listed, watched, applied and deleted like everything else, so that
# `helm` and `kubectl` can install something. Nothing acts on them: no pod is made, nothing is counted, no webhook is
# called, and a status stays as it was written. Their fields are not checked.
_TEMPLATED = schemas.record(
    metadata=schemas.METADATA,
    spec=schemas.record(template=schemas.POD),
    status=schemas.record(conditions=schemas.CONDITIONS),
)
_SERVICE = schemas.record(
    metadata=schemas.METADATA, spec=schemas.record(ports=schemas.keyed_list("port", "protocol"))
)
_stored = functools.partial(
    ResourceType, schema=schemas.WITH_CONDITIONS, subresources=("status",), counts_generation=True
)
_app = functools.partial(_stored, group="apps", schema=_TEMPLATED)
WORKLOADS = (
    _app(kind="Deployment", plural="deployments", short_names=("deploy",)),
    _app(kind="ReplicaSet", plural="replicasets", short_names=("rs",)),
    _app(kind="DaemonSet", plural="daemonsets", short_names=("ds",)),
    _stored(group="", kind="Service", plural="services", short_names=("svc",), schema=_SERVICE),
    _stored(group="", kind="ResourceQuota", plural="resourcequotas", short_names=("quota",)),
    _stored(group="policy", kind="PodDisruptionBudget", plural="poddisruptionbudgets", short_names=("pdb",)),
    _stored(
        group="networking.k8s.io",
        kind="NetworkPolicy",
        plural="networkpolicies",
        short_names=("netpol",),
        subresources=(),
    ),
    _stored(
        group=ADMISSION_GROUP,
        kind="ValidatingWebhookConfiguration",
        plural="validatingwebhookconfigurations",
        namespaced=False,
        schema=schemas.record(metadata=schemas.METADATA, webhooks=schemas.keyed_list("name")),
        subresources=(),
    ),
)


def built_in(profile: profiles.Profile) -> tuple[ResourceType, ...]:
    """Return all resources served by the release before any CustomResourceDefinition."""
    dynamic = classic_resources(profile) if profile.classic else dynamic_resources(profile)
    return (*_core(profile), *RBAC, *ADMISSION, DEFINITIONS, *dynamic, *WORKLOADS)


def _core(profile: profiles.Profile) -> Iterator[ResourceType]:
    for resource in CORE:
        if resource.plural == "pods" and profile.minor < _PODS_COUNTED:
            yield replace(resource, counts_generation=False)
        else:
            yield resource
