"""The observed state of a cluster, and the objects it is read from; pure.

The objects are those that the daemons do not read as far. What could not be read is a `findings.Unread`.

Source: core `v1` Node, `coordination.k8s.io/v1` Lease, `apiextensions.k8s.io/v1` CustomResourceDefinition,
`admissionregistration.k8s.io/v1` ValidatingAdmissionPolicy and its binding, `authorization.k8s.io/v1`
SubjectAccessReview, `authentication.k8s.io/v1` SelfSubjectReview.
"""

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import msgspec

from drawbar.driver.api import attachments, core, fabrics, maintenances, meta, otherslices
from drawbar.driver.cli.doctor.findings import Unread
from drawbar.driver.cli.doctor.permissions import Answer, Trial
from drawbar.driver.kube import exclusions
from drawbar.driver.slices import encoding


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
            entry.time
            for entry in self.managed_fields
            if b'"f:renewTime"' in bytes(entry.fields_v1) and entry.time
        ]
        return max(times, default="")


class Lease(meta.Struct, frozen=True):
    """A lease with what tells its holder's clock from the API server's."""

    metadata: LeaseMeta
    spec: core.LeaseSpec = core.LeaseSpec()


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


class SliceSpec(meta.Struct, frozen=True):
    """For which node a slice is published."""

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


class UserInfo(meta.Struct, frozen=True):
    """A user of the API server."""

    username: str = ""


class ReviewStatus(meta.Struct, frozen=True):
    """The answer of an access review, or of a review of oneself."""

    allowed: bool = False
    user_info: UserInfo = UserInfo()


class Review(meta.Struct, frozen=True):
    """A review that was answered."""

    status: ReviewStatus = ReviewStatus()


class ServiceAccount(meta.Struct, frozen=True):
    """A service account, of which only the existence matters."""

    metadata: meta.ObjectMeta


class VersionInfo(meta.Struct, frozen=True):
    """The answer of `/version`."""

    git_version: str = ""


T = TypeVar("T")
Reading: TypeAlias = T | Unread
_MINOR = re.compile(r"v?1\.(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The installation of Drawbar to check.

    Attributes:
        driver: its driver's name.
        namespace: that of its daemons.
        lease: the name of its controller's lease.
        controller, node: the service accounts of its daemons, in that namespace.
    """

    driver: str
    namespace: str
    lease: str
    controller: str
    node: str

    def user(self, account: str) -> str:
        """Return the name of a service account's user."""
        return f"system:serviceaccount:{self.namespace}:{account}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """What the API server's `Date` header said, between two looks at our own clock.

    Attributes:
        date: in whole seconds; None where there was no header.
    """

    before: datetime.datetime
    date: datetime.datetime | None
    after: datetime.datetime

    @property
    def ahead_seconds(self) -> tuple[float, float]:
        """By how much our clock is ahead of the API server's: at least, and at most."""
        if self.date is None:
            return float("-inf"), float("inf")
        second = datetime.timedelta(seconds=1)
        least, most = self.before - self.date - second, self.after - self.date
        return least.total_seconds(), most.total_seconds()

    @property
    def now(self) -> datetime.datetime:
        """The API server's time at the end of the answer, as far as it is known."""
        if self.date is None:
            return self.after
        least, most = self.ahead_seconds
        return self.after - datetime.timedelta(seconds=(least + most) / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What the API server keeps of a published device; as `slices.encoding.Kept`."""

    dropped: tuple[str, ...]
    form: encoding.Encoding
    details: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster.

    Attributes:
        server: its address.
        version: such as v1.36.2.
        resource_versions: those of resource.k8s.io that are served; empty if none is.
        taint_rules: the versions that have DeviceTaintRules.
        contexts: the versions that have PodSchedulingContexts, by which a driver's controller can allocate.
        definitions: by their name ours; None for one that is not there.
        features: None where resource.k8s.io/v1 is not served.
        accounts: by name, whether it exists.
        access: what the daemons' accounts may do.
        trials: what became of the daemons' writes, tried as their accounts.
        policies, bindings: all ValidatingAdmissionPolicies, and what puts them in force.
        lease: the controller's; None if there is none.
        pods: those of the daemons' namespace.
        published: slices of the driver.
        unreadable: the objects that these lists leave out.
        resources: the nodes with the resources of their device plugins.
    """

    where: Where
    server: str
    clock: Clock
    version: str
    resource_versions: Reading[tuple[str, ...]]
    taint_rules: Reading[tuple[str, ...]]
    definitions: Mapping[str, Reading[Definition | None]]
    features: Reading[Features | None]
    accounts: Mapping[str, Reading[bool]]
    access: tuple[Reading[Answer], ...]
    policies: Reading[tuple[Policy, ...]]
    bindings: Reading[tuple[Binding, ...]]
    lease: Reading[Lease | None]
    nodes: Reading[tuple[core.Node, ...]]
    node_leases: Reading[tuple[Lease, ...]]
    pods: Reading[tuple[core.Pod, ...]]
    published: Reading[tuple[Slice, ...]]
    fabrics: Reading[tuple[fabrics.Fabric, ...]]
    maintenances: Reading[tuple[maintenances.Maintenance, ...]]
    attachments: Reading[tuple[attachments.DeviceAttachment, ...]]
    contexts: Reading[tuple[str, ...]] = ()
    trials: tuple[Reading[Trial], ...] = ()
    unreadable: tuple[exclusions.Unreadable, ...] = ()
    resources: Reading[tuple[otherslices.Node, ...]] = ()

    @property
    def classic(self) -> str:
        """The version in which our controller allocates; empty where the scheduler allocates, or no component does."""
        versions = seen(self.contexts)
        return versions[0] if versions and "v1" not in seen(self.resource_versions) else ""

    @property
    def minor(self) -> int | None:
        """The minor version of the API server, such as 36."""
        return minor(self.version)

    @property
    def now(self) -> datetime.datetime:
        """By the API server's clock, which most times in objects come from."""
        return self.clock.now


def minor(version: str) -> int | None:
    """Return the minor version of such as v1.36.2, or None."""
    match = _MINOR.match(version)
    return int(match[1]) if match else None


def seen(reading: Reading[tuple[T, ...]]) -> tuple[T, ...]:
    """Return what was read; nothing where it could not be, which is a finding elsewhere."""
    return () if isinstance(reading, Unread) else reading
