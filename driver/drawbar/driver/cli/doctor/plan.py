"""All findings on the observed state; pure, total and deterministic.

Each topic yields at least one finding: no finding would read as "all is well".
"""

from drawbar.driver.cli.doctor import findings, observed
from drawbar.driver.cli.doctor.plans import (
    access,
    attachments,
    clocks,
    coexistence,
    devices,
    fabrics,
    nodes,
    server,
)

_TOPICS = (
    server.plan,
    server.plan_features,
    access.plan,
    clocks.plan,
    nodes.plan,
    fabrics.plan,
    fabrics.plan_hosts,
    attachments.plan,
    coexistence.plan,
    devices.plan,
)


def plan(cluster: observed.Cluster) -> tuple[findings.Finding, ...]:
    """Return all findings on a cluster by check, each once, the worst of each check first."""
    return findings.sort_findings(dict.fromkeys(finding for topic in _TOPICS for finding in topic(cluster)))
