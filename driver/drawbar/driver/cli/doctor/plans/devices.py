"""The devices with a taint for a fault, and the claims without a matching device; pure."""

from collections.abc import Iterator, Sequence

from drawbar.driver.cli.doctor import findings, observed
from drawbar.driver.cli.doctor.findings import Check, Finding, Unread
from drawbar.driver.cli.status import faults, tree, views

NAMED_MAX = 50
"""The most taints with a finding of their own."""


def plan(cluster: observed.Cluster) -> Iterator[Finding]:
    """Yield the findings on devices and waiting claims, the same as in `drawbar status`."""
    if isinstance(cluster.devices, Unread):
        yield findings.make_unread(Check.DEVICES_TAINTED, cluster.devices)
    else:
        yield from _judge_devices(cluster.devices)
    if isinstance(cluster.waiting, Unread):
        yield findings.make_unread(Check.CLAIMS_ALLOCATED, cluster.waiting)
        return
    for claim in cluster.waiting:
        yield faults.judge_claim(claim, views.age(claim.since, cluster.now) if claim.since else "")


def _judge_devices(devices: Sequence[tree.Device]) -> Iterator[Finding]:
    listed = [finding for device in devices for finding in faults.list_faults(device)]
    yield from listed[:NAMED_MAX]
    if len(listed) > NAMED_MAX:
        subject, message = f"{len(listed) - NAMED_MAX} more taints", "show a fault of a device as well"
        yield findings.make_warning(
            Check.DEVICES_TAINTED, subject, message, "drawbar status --all shows them"
        )
    if not listed:
        message = "none has a taint for a fault"
        yield findings.make_ok(Check.DEVICES_TAINTED, f"{len(devices)} devices", message)
