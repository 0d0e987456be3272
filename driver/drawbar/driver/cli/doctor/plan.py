"""From what was observed to all findings; pure, total and deterministic.

Whatever was observed, and whatever could not be, each topic says something: no finding at all would read as "all is well".
"""

from drawbar.driver.cli.doctor import findings, observed
from drawbar.driver.cli.doctor.plans import (
    access,
    attachments,
    clocks,
    fabrics,
    features,
    hosts,
    nodes,
    server,
)

_TOPICS = (server, features, access, clocks, nodes, fabrics, hosts, attachments)


def plan(cluster: observed.Cluster) -> tuple[findings.Finding, ...]:
    """All findings on a cluster, by check, the worst of each first."""
    return findings.ordered(finding for topic in _TOPICS for finding in topic.plan(cluster))
