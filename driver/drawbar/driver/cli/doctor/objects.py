"""What the doctor reads of objects that the daemons read less of, or not at all.

Source: core `v1` Node and Pod, `coordination.k8s.io/v1` Lease, `apiextensions.k8s.io/v1` CustomResourceDefinition,
`admissionregistration.k8s.io/v1` ValidatingAdmissionPolicy and its binding, `authorization.k8s.io/v1`
SubjectAccessReview, `authentication.k8s.io/v1` SelfSubjectReview.
"""

from typing import Any

import msgspec

from drawbar.driver.api import leases, meta, nodes


class NodeInfo(nodes.NodeInfo, frozen=True):
    """What the kubelet tells of its machine, and of itself."""

    kubelet_version: str = ""
    container_runtime_version: str = ""


class NodeStatus(meta.Struct, frozen=True):
    """The part of a node's status that is judged."""

    node_info: NodeInfo = NodeInfo()
    conditions: tuple[meta.Condition, ...] = ()


class Node(meta.Struct, frozen=True):
    """A machine of the cluster."""

    metadata: meta.ObjectMeta
    status: NodeStatus = NodeStatus()


class PodSpec(meta.Struct, frozen=True):
    """Where a pod is, and as whom it runs."""

    node_name: str = ""
    service_account_name: str = ""


class PodStatus(meta.Struct, frozen=True):
    """How a pod is."""

    phase: str = ""
    conditions: tuple[meta.Condition, ...] = ()


class Pod(meta.Struct, frozen=True):
    """A pod, perhaps one of a daemon."""

    metadata: meta.ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def ready(self) -> bool:
        """Whether its readiness probe is content."""
        return meta.is_true(self.status.conditions, "Ready")


class ManagedFields(meta.Struct, frozen=True):
    """Who wrote which fields, and when by the API server's clock."""

    time: str = ""
    fields_v1: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="fieldsV1")


class LeaseMeta(meta.Struct, frozen=True):
    """The metadata of a lease."""

    name: str = ""
    managed_fields: tuple[ManagedFields, ...] = ()

    @property
    def renewal_written(self) -> str:
        """When the API server took the last renewal, by its own clock; empty if it does not tell."""
        times = [
            one.time for one in self.managed_fields if b'"f:renewTime"' in bytes(one.fields_v1) and one.time
        ]
        return max(times, default="")


class Lease(meta.Struct, frozen=True):
    """A lease with what tells its holder's clock from the API server's."""

    metadata: LeaseMeta
    spec: leases.LeaseSpec = leases.LeaseSpec()


class DefinitionVersion(meta.Struct, frozen=True):
    """One version of a custom kind."""

    name: str
    served: bool = False
    schema: dict[str, Any] = msgspec.field(default_factory=dict)
    subresources: dict[str, Any] = msgspec.field(default_factory=dict)
    selectable_fields: tuple[dict[str, str], ...] = ()


class DefinitionSpec(meta.Struct, frozen=True):
    """The part of a definition that is judged."""

    versions: tuple[DefinitionVersion, ...] = ()


class DefinitionStatus(meta.Struct, frozen=True):
    """Whether the kind is served; a definition that was just made has null for conditions."""

    conditions: tuple[meta.Condition, ...] | None = None


class Definition(meta.Struct, frozen=True):
    """A CustomResourceDefinition."""

    metadata: meta.ObjectMeta
    spec: DefinitionSpec
    status: DefinitionStatus = DefinitionStatus()


class SlicePool(meta.Struct, frozen=True):
    """Which pool a slice is of."""

    name: str = ""


class SliceSpec(meta.Struct, frozen=True):
    """Who published a slice, and for which node."""

    driver: str = ""
    pool: SlicePool = SlicePool()
    node_name: str = ""


class Slice(meta.Struct, frozen=True):
    """A ResourceSlice without its devices."""

    metadata: meta.ObjectMeta
    spec: SliceSpec = SliceSpec()


class MatchCondition(meta.Struct, frozen=True):
    """An expression that says which requests a policy is about."""

    expression: str = ""


class PolicySpec(meta.Struct, frozen=True):
    """Whom a policy is about."""

    match_conditions: tuple[MatchCondition, ...] = ()


class Policy(meta.Struct, frozen=True):
    """A ValidatingAdmissionPolicy."""

    metadata: meta.ObjectMeta
    spec: PolicySpec = PolicySpec()


class BindingSpec(meta.Struct, frozen=True):
    """What becomes of a request that a policy is against."""

    policy_name: str = ""
    validation_actions: tuple[str, ...] = ()


class Binding(meta.Struct, frozen=True):
    """A ValidatingAdmissionPolicyBinding."""

    metadata: meta.ObjectMeta
    spec: BindingSpec = BindingSpec()


class ReviewStatus(meta.Struct, frozen=True):
    """The answer of an access review."""

    allowed: bool = False


class Review(meta.Struct, frozen=True):
    """An access review that was answered."""

    status: ReviewStatus = ReviewStatus()


class UserInfo(meta.Struct, frozen=True):
    """Who somebody is to the API server."""

    username: str = ""


class SelfStatus(meta.Struct, frozen=True):
    """The answer of a review of oneself."""

    user_info: UserInfo = UserInfo()


class SelfReview(meta.Struct, frozen=True):
    """Who we are."""

    status: SelfStatus = SelfStatus()


class ServiceAccount(meta.Struct, frozen=True):
    """That it exists is all that matters."""

    metadata: meta.ObjectMeta


class VersionInfo(meta.Struct, frozen=True):
    """The answer of `/version`."""

    git_version: str = ""


class GroupVersion(meta.Struct, frozen=True):
    """One version of an API group."""

    version: str = ""


class Group(meta.Struct, frozen=True):
    """The answer of `/apis/GROUP`."""

    versions: tuple[GroupVersion, ...] = ()


class ServedResource(meta.Struct, frozen=True):
    """One resource of a group and version."""

    name: str = ""


class ServedResources(meta.Struct, frozen=True):
    """The answer of `/apis/GROUP/VERSION`."""

    resources: tuple[ServedResource, ...] = ()
