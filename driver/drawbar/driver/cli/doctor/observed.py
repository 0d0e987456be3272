"""The observed state of a cluster, and the objects behind it; pure.

The daemons do not read these parts of the objects. Unreadable state is a `findings.Unread`.

Source: core `v1` Node, `coordination.k8s.io/v1` Lease, `apiextensions.k8s.io/v1` CustomResourceDefinition,
`admissionregistration.k8s.io/v1` ValidatingAdmissionPolicy and its binding, `authorization.k8s.io/v1`
SubjectAccessReview, `authentication.k8s.io/v1` SelfSubjectReview.
"""

import datetime
import re
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec

from drawbar.driver.api import attachments, core, fabrics, maintenances, meta, otherslices, slices
from drawbar.driver.cli.doctor.findings import Unread
from drawbar.driver.cli.doctor.permissions import Answer, Trial
from drawbar.driver.cli.status import tree
from drawbar.driver.kube import exclusions
from drawbar.driver.slices import encoding


class ManagedFields(meta.Struct, frozen=True):
    """The fields of one writer, and the time of its write by the API server's clock."""

    time: str = ""
    fields_v1: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="fieldsV1")


class LeaseMeta(meta.Struct, frozen=True):
    """The metadata of a lease."""

    name: str = ""
    managed_fields: tuple[ManagedFields, ...] = ()

    @property
    def renewal_written(self) -> str:
        """Return the time of the last renewal by the API server's clock; empty if unknown."""
        times = [
            entry.time
            for entry in self.managed_fields
            if b'"f:renewTime"' in bytes(entry.fields_v1) and entry.time
        ]
        return max(times, default="")


class Lease(meta.Struct, frozen=True):
    """A lease, with the times to compare its holder's clock with the API server's."""

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
    """The part of a definition that the doctor checks."""

    versions: tuple[DefinitionVersion, ...] = ()


class DefinitionStatus(meta.Struct, frozen=True):
    """The status of a definition; a new definition has null for conditions."""

    conditions: tuple[meta.Condition, ...] | None = None


class Definition(meta.Struct, frozen=True):
    """A CustomResourceDefinition."""

    metadata: meta.ObjectMeta
    spec: DefinitionSpec
    status: DefinitionStatus = DefinitionStatus()


class MatchCondition(meta.Struct, frozen=True):
    """An expression that selects a policy's requests."""

    expression: str = ""


class PolicySpec(meta.Struct, frozen=True):
    """The requests that a policy applies to."""

    match_conditions: tuple[MatchCondition, ...] = ()


class Policy(meta.Struct, frozen=True):
    """A ValidatingAdmissionPolicy."""

    metadata: meta.ObjectMeta
    spec: PolicySpec = PolicySpec()


class BindingSpec(meta.Struct, frozen=True):
    """The action on a request that violates a policy."""

    policy_name: str = ""
    validation_actions: tuple[str, ...] = ()


class Binding(meta.Struct, frozen=True):
    """A ValidatingAdmissionPolicyBinding."""

    metadata: meta.ObjectMeta
    spec: BindingSpec = BindingSpec()


class ServiceAccount(meta.Struct, frozen=True):
    """A service account; only its existence matters."""

    metadata: meta.ObjectMeta


class VersionInfo(meta.Struct, frozen=True):
    """The answer of `/version`."""

    git_version: str = ""


T = TypeVar("T")
Reading: TypeAlias = T | Unread
_MINOR = re.compile(r"v?1\.([0-9]{1,9})")


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """The installation of Drawbar to check.

    Attributes:
        driver: the driver's name.
        namespace: the daemons' namespace.
        lease: the name of the controller's lease.
        controller, node: the service accounts of the daemons, in that namespace.
    """

    driver: str
    namespace: str
    lease: str
    controller: str
    node: str

    def user(self, account: str) -> str:
        """Return the user name of a service account."""
        return f"system:serviceaccount:{self.namespace}:{account}"


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """The API server's `Date` header, between two readings of our own clock.

    Attributes:
        date: the header's time in whole seconds; None without a header.
    """

    before: datetime.datetime
    date: datetime.datetime | None
    after: datetime.datetime

    @property
    def ahead_seconds(self) -> tuple[float, float]:
        """Return the least and the most seconds that our clock may be ahead of the API server's."""
        if self.date is None:
            return float("-inf"), float("inf")
        second = datetime.timedelta(seconds=1)
        least, most = self.before - self.date - second, self.after - self.date
        return least.total_seconds(), most.total_seconds()

    @property
    def now(self) -> datetime.datetime:
        """Return the estimated time of the API server at the end of its answer; our own time if it sent none."""
        if self.date is None:
            return self.after
        least, most = self.ahead_seconds
        return self.after - datetime.timedelta(seconds=(least + most) / 2)


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a published device that the API server keeps; as `slices.encoding.Kept`."""

    dropped: tuple[str, ...]
    form: encoding.Encoding
    details: frozenset[str]


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The observed state of a cluster.

    Attributes:
        server: the API server's address.
        version: the API server's version, such as v1.36.2.
        resource_versions: the served versions of resource.k8s.io; empty if none is.
        taint_rules: the versions with DeviceTaintRules.
        contexts: the versions with PodSchedulingContexts, by which a driver's controller can allocate.
        definitions: our definitions by name; None for a missing one.
        features: None if resource.k8s.io/v1 is not served.
        accounts: by name, whether the account exists.
        access: the permissions of the daemons' accounts.
        trials: the outcomes of the daemons' writes, tried as their accounts.
        policies, bindings: all ValidatingAdmissionPolicies, and their bindings.
        lease: the controller's lease; None if there is none.
        pods: the pods in the daemons' namespace.
        published: the driver's slices.
        unreadable: the objects left out of these lists.
        devices: the driver's devices as in `drawbar status`; empty if resource.k8s.io/v1 is not served.
        waiting: the first claims that wait for a device, each with the reason.
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
    nodes: Reading[tuple[otherslices.Node, ...]]
    node_leases: Reading[tuple[Lease, ...]]
    pods: Reading[tuple[core.Pod, ...]]
    published: Reading[tuple[slices.ResourceSlice, ...]]
    fabrics: Reading[tuple[fabrics.Fabric, ...]]
    maintenances: Reading[tuple[maintenances.Maintenance, ...]]
    attachments: Reading[tuple[attachments.DeviceAttachment, ...]]
    contexts: Reading[tuple[str, ...]] = ()
    trials: tuple[Reading[Trial], ...] = ()
    unreadable: tuple[exclusions.Unreadable, ...] = ()
    devices: Reading[tuple[tree.Device, ...]] = ()
    waiting: Reading[tuple[tree.Claim, ...]] = ()

    @property
    def classic(self) -> str:
        """Return the version in which our controller allocates; empty if the scheduler allocates, or no component does."""
        versions = get_objects(self.contexts)
        return versions[0] if versions and "v1" not in get_objects(self.resource_versions) else ""

    @property
    def minor(self) -> int | None:
        """Return the minor version of the API server, such as 36."""
        return minor(self.version)

    @property
    def now(self) -> datetime.datetime:
        """Return the time by the API server's clock, which most times in objects come from."""
        return self.clock.now


def minor(version: str) -> int | None:
    """Return the minor version of a version such as v1.36.2, or None."""
    match = _MINOR.match(version)
    return int(match[1]) if match else None


def get_objects(reading: Reading[tuple[T, ...]]) -> tuple[T, ...]:
    """Return the objects read; empty if they could not be read, which is a finding elsewhere."""
    return () if isinstance(reading, Unread) else reading
