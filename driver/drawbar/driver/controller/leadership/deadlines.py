"""The decision to take the lease; pure.

Invariant: a lease of another holder is taken only after it has not changed for its whole duration *by our own
clock*. So the clocks of two machines need not agree.

Source: client-go `leaderelection`, whose leases these are: holderIdentity, leaseDurationSeconds, renewTime,
leaseTransitions.
"""

import msgspec

from drawbar.driver.api import core, meta


class Candidacy(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate's view of the lease.

    Attributes:
        lease: the lease as just read; None if there is none.
        identity: our own identity.
        seen_at: the time when we first saw the present lease, on our monotonic clock, in seconds.
        duration_seconds: the duration for a lease without one.
    """

    lease: core.Lease | None
    identity: str
    seen_at: float
    duration_seconds: int


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """There is no lease yet."""


class Take(msgspec.Struct, frozen=True, kw_only=True):
    """The lease is already ours, given back, or abandoned."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Another holder leads; its lease cannot run out before then."""

    seconds: float


Action = Create | Take | Wait


def plan(observed: Candidacy, now: float) -> Action:
    """Return the next step of a candidate; `now` is on the clock of `seen_at`."""
    lease = observed.lease
    if lease is None:
        return Create()
    if lease.spec.holder_identity in (None, "", observed.identity):
        return Take()
    ends = observed.seen_at + (lease.spec.lease_duration_seconds or observed.duration_seconds)
    return Take() if now >= ends else Wait(seconds=ends - now)


def build_held_lease(
    lease: core.Lease | None,
    metadata: meta.ObjectMeta,
    *,
    identity: str,
    duration_seconds: int,
    stamp: str,
) -> core.Lease:
    """Return the lease as its holder writes it, first and at each renewal."""
    spec = lease.spec if lease is not None else core.LeaseSpec()
    same = spec.holder_identity == identity
    transitions = spec.lease_transitions or 0
    return core.Lease(
        metadata=metadata,
        spec=core.LeaseSpec(
            holder_identity=identity,
            lease_duration_seconds=duration_seconds,
            acquire_time=spec.acquire_time if same and spec.acquire_time else stamp,
            renew_time=stamp,
            lease_transitions=transitions if same or lease is None else transitions + 1,
        ),
    )


def build_released_lease(lease: core.Lease, stamp: str) -> core.Lease:
    """Return the lease given back, so that the next holder need not wait for its end."""
    return core.Lease(
        metadata=lease.metadata,
        spec=core.LeaseSpec(
            holder_identity="",
            lease_duration_seconds=1,
            acquire_time=lease.spec.acquire_time,
            renew_time=stamp,
            lease_transitions=lease.spec.lease_transitions,
        ),
    )
