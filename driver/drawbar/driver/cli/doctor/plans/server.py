"""Whether the API server is one that Drawbar works with; pure."""

from collections.abc import Iterator

from drawbar.driver.cli.doctor import findings, observed
from drawbar.driver.cli.doctor.findings import Check, Finding, Severity, Unread
from drawbar.driver.cli.doctor.plans import definitions

OLDEST, NEWEST = 34, 37
"""The minor versions of Kubernetes that the tests cover."""


def plan(cluster: observed.Cluster) -> Iterator[Finding]:
    """Findings on its version and on what it serves."""
    yield _version(cluster)
    yield _resource_api(cluster)
    if isinstance(cluster.contexts, Unread):
        yield findings.unread(Check.SERVER_RESOURCE_API, cluster.contexts)
    # Our controller chooses its own objects by itself where the API server cannot, which is so before 1.31.
    yield from definitions.plan(cluster.definitions, selectable=cluster.classic != "v1alpha2")


def _version(cluster: observed.Cluster) -> Finding:
    subject, check = f"API server {cluster.server}", Check.SERVER_VERSION
    minor = cluster.minor
    if minor is None or minor > NEWEST:
        return Finding(
            check=check,
            severity=Severity.NOTE,
            subject=subject,
            message=f"is Kubernetes {cluster.version}, and this version was tried with 1.{OLDEST} to 1.{NEWEST}",
            remedy="read the release notes of a newer Drawbar",
        )
    if cluster.classic:
        return findings.ok(check, subject, f"is Kubernetes {cluster.version}, with classic allocation")
    if minor < OLDEST:
        return Finding(
            check=check,
            severity=Severity.ERROR,
            subject=subject,
            message=f"is Kubernetes {cluster.version}; Drawbar needs 1.{OLDEST} or later, or classic allocation",
            remedy="upgrade Kubernetes, best to 1.36 or later",
        )
    return findings.ok(check, subject, f"is Kubernetes {cluster.version}")


def _resource_api(cluster: observed.Cluster) -> Finding:
    versions = cluster.resource_versions
    if isinstance(versions, Unread):
        return findings.unread(Check.SERVER_RESOURCE_API, versions)
    served = ", ".join(versions) or "nothing"
    if "v1" in versions:
        return findings.ok(Check.SERVER_RESOURCE_API, "resource.k8s.io", f"is served as {served}")
    if cluster.classic:
        return Finding(
            check=Check.SERVER_RESOURCE_API,
            severity=Severity.NOTE,
            subject="resource.k8s.io",
            message=(
                f"v1 is not served ({served} is): Drawbar's controller allocates. This release lacks published devices, so "
                "those that live in a node are not offered, taints are known to the controller alone, and no claim says "
                "how far its device is: the DeviceAttachments do"
            ),
            remedy="docs/classic.md has all limits; on 1.36 and later there are none of these",
        )
    return Finding(
        check=Check.SERVER_RESOURCE_API,
        severity=Severity.ERROR,
        subject="resource.k8s.io",
        message=f"v1 is not served ({served} is): there is no dynamic resource allocation that Drawbar can use",
        remedy=f"upgrade Kubernetes to 1.{OLDEST} or later, and take resource.k8s.io/v1=false out of --runtime-config",
    )
