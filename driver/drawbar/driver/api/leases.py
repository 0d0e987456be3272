"""Leases: who leads, and until when others believe it.

Source: `coordination.k8s.io/v1` Lease.
"""

from drawbar.driver.api import meta


class LeaseSpec(meta.Struct, frozen=True):
    """The claim to lead. Times are `metav1.MicroTime`."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(meta.Struct, frozen=True):
    """One lease."""

    metadata: meta.ObjectMeta
    spec: LeaseSpec = LeaseSpec()
