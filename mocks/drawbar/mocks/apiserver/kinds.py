"""The strategy of each resource."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from drawbar.mocks.apiserver import classickinds, corekinds, customkinds, dynamickinds, rbac
from drawbar.mocks.apiserver.profiles import Profile
from drawbar.mocks.apiserver.resources import (
    ADMISSION_GROUP,
    CRD_GROUP,
    RBAC_GROUP,
    RESOURCE_GROUP,
    ResourceType,
)
from drawbar.mocks.apiserver.storage import Store
from drawbar.mocks.apiserver.strategies import Strategy

_BY_RESOURCE: Mapping[tuple[str, str], type[Strategy]] = MappingProxyType(
    {
        ("", "pods"): corekinds.Pods,
        ("", "nodes"): corekinds.Nodes,
        ("", "namespaces"): corekinds.Namespaces,
        ("", "configmaps"): corekinds.ConfigMaps,
        ("", "secrets"): corekinds.Secrets,
        ("", "events"): corekinds.Events,
        ("coordination.k8s.io", "leases"): corekinds.Leases,
        (RBAC_GROUP, "rolebindings"): corekinds.RoleBindings,
        (RBAC_GROUP, "clusterrolebindings"): corekinds.RoleBindings,
        (ADMISSION_GROUP, "validatingadmissionpolicies"): corekinds.AdmissionPolicies,
        (ADMISSION_GROUP, "validatingadmissionpolicybindings"): corekinds.AdmissionBindings,
        (RESOURCE_GROUP, "resourceclaims"): dynamickinds.Claims,
        (RESOURCE_GROUP, "resourceclaimtemplates"): dynamickinds.Templates,
        (RESOURCE_GROUP, "resourceslices"): dynamickinds.Slices,
        (RESOURCE_GROUP, "deviceclasses"): dynamickinds.Classes,
        (RESOURCE_GROUP, "devicetaintrules"): dynamickinds.TaintRules,
        (CRD_GROUP, "customresourcedefinitions"): customkinds.Definitions,
    }
)


def strategy_for(
    resource: ResourceType, profile: Profile, authorizer: rbac.Authorizer, store: Store
) -> Strategy:
    """Return the strategy of a resource."""
    if resource.custom:
        kind: type[Strategy] = customkinds.Custom
    elif profile.classic and resource.group == RESOURCE_GROUP:
        kind = classickinds.BY_PLURAL.get(resource.plural, Strategy)
    else:
        kind = _BY_RESOURCE.get(resource.where, Strategy)
    return kind(profile, authorizer, store)
