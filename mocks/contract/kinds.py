"""Where the objects that the suite makes are served."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind: its group and version as in apiVersion, its name, and whether it lives in a namespace."""

    api_version: str
    kind: str
    namespaced: bool = True

    @property
    def prefix(self) -> str:
        """Return the path of the group and version."""
        root = "apis" if "/" in self.api_version else "api"
        return f"/{root}/{self.api_version}"


def _cluster(api_version: str, kind: str) -> Kind:
    return Kind(api_version=api_version, kind=kind, namespaced=False)


RBAC = "rbac.authorization.k8s.io/v1"
RESOURCE = "resource.k8s.io/v1"
ADMISSION = "admissionregistration.k8s.io/v1"
KINDS = {
    "namespaces": _cluster("v1", "Namespace"),
    "nodes": _cluster("v1", "Node"),
    "pods": Kind(api_version="v1", kind="Pod"),
    "configmaps": Kind(api_version="v1", kind="ConfigMap"),
    "secrets": Kind(api_version="v1", kind="Secret"),
    "events": Kind(api_version="events.k8s.io/v1", kind="Event"),
    "serviceaccounts": Kind(api_version="v1", kind="ServiceAccount"),
    "poddisruptionbudgets": Kind(api_version="policy/v1", kind="PodDisruptionBudget"),
    "leases": Kind(api_version="coordination.k8s.io/v1", kind="Lease"),
    "roles": Kind(api_version=RBAC, kind="Role"),
    "rolebindings": Kind(api_version=RBAC, kind="RoleBinding"),
    "clusterroles": _cluster(RBAC, "ClusterRole"),
    "clusterrolebindings": _cluster(RBAC, "ClusterRoleBinding"),
    "customresourcedefinitions": _cluster("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    "validatingadmissionpolicies": _cluster(ADMISSION, "ValidatingAdmissionPolicy"),
    "validatingadmissionpolicybindings": _cluster(ADMISSION, "ValidatingAdmissionPolicyBinding"),
    "resourceclaims": Kind(api_version=RESOURCE, kind="ResourceClaim"),
    "resourceclaimtemplates": Kind(api_version=RESOURCE, kind="ResourceClaimTemplate"),
    "resourceslices": _cluster(RESOURCE, "ResourceSlice"),
    "deviceclasses": _cluster(RESOURCE, "DeviceClass"),
    "devicetaintrules": _cluster(RESOURCE, "DeviceTaintRule"),
}


def with_rules(version: str) -> Mapping[str, Kind]:
    """Return `KINDS` and DeviceTaintRules in a server's version."""
    return {**KINDS, "devicetaintrules": _cluster(f"resource.k8s.io/{version}", "DeviceTaintRule")}


def classic(version: str) -> Mapping[str, Kind]:
    """Return the same, with the kinds of `resource.k8s.io` in a version in which a driver's controller allocates."""
    where = f"resource.k8s.io/{version}"
    own = {
        "resourceclaims": Kind(api_version=where, kind="ResourceClaim"),
        "resourceclaimtemplates": Kind(api_version=where, kind="ResourceClaimTemplate"),
        "podschedulingcontexts": Kind(api_version=where, kind="PodSchedulingContext"),
    }
    if version == "v1alpha2":
        own["resourceclasses"] = _cluster(where, "ResourceClass")
    else:
        own["deviceclasses"] = _cluster(where, "DeviceClass")
    return {name: kind for name, kind in KINDS.items() if kind.api_version != RESOURCE} | own
