"""The controller's leadership, and the agreement of all clocks; pure.

A lease shows the difference between its holder's clock and the API server's. The holder writes `renewTime`; the API
server adds the time of that write in `managedFields`. Only their difference counts, so our own clock is not needed.
"""

import datetime
from collections.abc import Iterator
from typing import NamedTuple

from drawbar.driver.api import meta
from drawbar.driver.cli.doctor import findings, observed
from drawbar.driver.cli.doctor.findings import Check, Finding, Severity, Unread

SKEW_SECONDS = 2.0
"""More than a slow answer, or the whole seconds of a header, explain."""
SKEW_ERROR_SECONDS = 30.0
"""The controller gives up 30 s before the scheduler; with this skew, it would come too late."""
LATE_SECONDS = 5.0
"""The time after its end during which a lease may still be renewed, as seen from here."""
_HALF_SECOND = datetime.timedelta(seconds=0.5)
_SYNCHRONISE = "keep the clocks of all machines together: chrony or systemd-timesyncd, with the same servers"


class _Skew(NamedTuple):
    """A node, and the seconds that its clock is ahead."""

    node: str
    seconds: float


def plan(cluster: observed.Cluster) -> Iterator[Finding]:
    """Yield the findings on the leader and on the clocks."""
    yield _leader(cluster)
    yield here(cluster.clock)
    lease = cluster.lease
    if not isinstance(lease, Unread) and lease is not None:
        yield from _controller(lease)
    yield from _nodes(cluster)


def _leader(cluster: observed.Cluster) -> Finding:
    lease, where = cluster.lease, cluster.where
    subject = f"Lease {where.namespace}/{where.lease}"
    if isinstance(lease, Unread):
        return findings.make_unread(Check.CONTROLLER_LEADER, lease)
    remedy = f"look at the state and log of the controller's pods in namespace {where.namespace}"
    if lease is None or not lease.spec.holder_identity:
        never = (
            "does not exist: no controller has ever led"
            if lease is None
            else "has no holder: no controller leads"
        )
        return findings.make_error(
            Check.CONTROLLER_LEADER, subject, f"{never}; without one, nothing is attached or detached", remedy
        )
    renewed = meta.moment(lease.metadata.renewal_written) or meta.moment(lease.spec.renew_time)
    holder, lasts = lease.spec.holder_identity, lease.spec.lease_duration_seconds or 15
    age = (cluster.now - renewed).total_seconds() if renewed is not None else float("inf")
    if age > lasts + LATE_SECONDS:
        renewal = f"{age:.0f} s ago" if renewed is not None else "never"
        message = (
            f"was last renewed {renewal} by {holder}: no controller leads, so nothing is attached or detached"
        )
        return findings.make_error(Check.CONTROLLER_LEADER, subject, message, remedy)
    return findings.make_ok(Check.CONTROLLER_LEADER, subject, f"{holder} leads")


def here(clock: observed.Clock) -> Finding:
    """Return the finding on our own clock, compared with the API server's."""
    least, most = clock.ahead_seconds
    if clock.date is None:
        return findings.make_unread(
            Check.CLOCKS_HERE, Unread(what="the clock of this machine", why="the answer has no Date header")
        )
    nearest = max(least, min(0.0, most))
    subject = "the clock of this machine"
    if abs(nearest) <= SKEW_SECONDS:
        return findings.make_ok(Check.CLOCKS_HERE, subject, "agrees with the API server's")
    return findings.make_warning(
        Check.CLOCKS_HERE,
        subject,
        f"is {_apart(nearest)} the API server's; it matters if a daemon runs here",
        _SYNCHRONISE,
    )


def _controller(lease: observed.Lease) -> Iterator[Finding]:
    skew = _skew(lease)
    if skew is None:
        return
    subject = f"the clock of {lease.spec.holder_identity or 'the last leader'}"
    if abs(skew) <= SKEW_SECONDS:
        yield findings.make_ok(Check.CLOCKS_CONTROLLER, subject, "agrees with the API server's")
        return
    what = "it gives claims up early" if skew > 0 else "it may give claims up after the scheduler already has"
    yield Finding(
        check=Check.CLOCKS_CONTROLLER,
        severity=_severity(skew),
        subject=subject,
        message=f"is {_apart(skew)} the API server's: {what}",
        remedy=_SYNCHRONISE,
    )


def _nodes(cluster: observed.Cluster) -> Iterator[Finding]:
    leases = cluster.node_leases
    if isinstance(leases, Unread):
        yield findings.make_unread(Check.CLOCKS_NODE, leases)
        return
    measured = [
        _Skew(lease.metadata.name, skew)
        for lease in leases
        if lease.spec.renew_time and (skew := _skew(lease)) is not None
    ]
    off = sorted(
        (skewed for skewed in measured if abs(skewed.seconds) > SKEW_SECONDS),
        key=lambda skewed: -abs(skewed.seconds),
    )
    for skewed in off[: findings.NAMED_MAX]:
        yield Finding(
            check=Check.CLOCKS_NODE,
            severity=_severity(skewed.seconds),
            subject=f"the clock of node {skewed.node}",
            message=f"is {_apart(skewed.seconds)} the API server's: its daemon gives up on new devices too early or too late",
            remedy=_SYNCHRONISE,
        )
    if off[findings.NAMED_MAX :]:
        rest = [skewed.node for skewed in off[findings.NAMED_MAX :]]
        yield Finding(
            check=Check.CLOCKS_NODE,
            severity=_severity(off[findings.NAMED_MAX].seconds),
            subject=f"the clocks of {len(rest)} more nodes",
            message=f"are more than {SKEW_SECONDS:g} s off: {findings.join_names(rest)}",
            remedy=_SYNCHRONISE,
        )
    if measured and not off:
        yield findings.make_ok(
            Check.CLOCKS_NODE, f"the clocks of {len(measured)} nodes", "agree with the API server's"
        )


def _skew(lease: observed.Lease) -> float | None:
    """Return the seconds that the holder's clock is ahead, or None if they are not known."""
    written, renewed = meta.moment(lease.metadata.renewal_written), meta.moment(lease.spec.renew_time)
    if written is None or renewed is None:
        return None
    return (renewed - written - _HALF_SECOND).total_seconds()


def _apart(seconds: float) -> str:
    return f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'}"


def _severity(skew: float) -> Severity:
    return Severity.ERROR if abs(skew) > SKEW_ERROR_SECONDS else Severity.WARNING
