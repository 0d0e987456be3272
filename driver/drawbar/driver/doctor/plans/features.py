"""What the API server drops of published devices, and what that means on each release; pure.

Source of the releases' defaults: Kubernetes feature gates, 1.34 to 1.37.
"""

from collections.abc import Iterator

from drawbar.driver.api import fabrics, meta
from drawbar.driver.controller.pools import encoding
from drawbar.driver.doctor import findings, observed
from drawbar.driver.doctor.findings import Check, Finding, Severity, Unread

BINDING = "DRADeviceBindingConditions"
TAINTS = "DRADeviceTaints"
ON_SINCE = 36
"""Both gates are alpha, and off, before; from then on they are on unless somebody turns them off."""
RULES = "DRADeviceTaintRules"
RULES_END_SCHEDULER = 36
"""Its scheduler takes rules for another type than it lists; source: resourceslice/tracker of 1.36.2, `typedSlice`."""


def plan(cluster: observed.Cluster) -> Iterator[Finding]:
    """Findings on each feature that Drawbar has a use for."""
    features = cluster.features
    if isinstance(features, Unread):
        yield _hearsay(cluster, features)
    elif features is not None:
        yield from _binding(cluster, features)
        yield _taints(cluster, features)
        yield from _details(features)
    yield from _rules(cluster)


def _hearsay(cluster: observed.Cluster, lost: Unread) -> Finding:
    """What the controller, which tries the same, says in the condition of a Fabric."""
    for fabric in observed.seen(cluster.fabrics):
        said = meta.find(fabric.status.conditions, fabrics.FEATURES_DROPPED)
        if said is not None and said.is_true:
            return Finding(
                check=Check.FEATURES_BINDING_CONDITIONS,
                severity=Severity.ERROR,
                subject=f"Fabric {fabric.metadata.name}",
                message=f"its controller says: {said.message}",
                remedy=_remedy(cluster.minor, BINDING, "kube-apiserver and kube-scheduler"),
            )
        if said is not None:
            text = f"the controller of Fabric {fabric.metadata.name} says that all are kept"
            return findings.ok(Check.FEATURES_BINDING_CONDITIONS, "fields of devices", text)
    return findings.unread(Check.FEATURES_BINDING_CONDITIONS, lost)


def _binding(cluster: observed.Cluster, features: observed.Features) -> Iterator[Finding]:
    lost = [field for field in features.dropped if field != "taints"]
    if lost:
        yield Finding(
            check=Check.FEATURES_BINDING_CONDITIONS,
            severity=Severity.ERROR,
            subject="binding conditions",
            message=(
                f"the API server drops {', '.join(lost)} without a word ({_why(cluster.minor, BINDING)}); a pod would "
                "start before its device is attached, so no fabric device is published. Devices that live in a node "
                "are offered all the same"
            ),
            remedy=_remedy(cluster.minor, BINDING, "kube-apiserver and kube-scheduler"),
        )
        return
    yield findings.ok(Check.FEATURES_BINDING_CONDITIONS, "binding conditions", "the API server keeps them")
    if cluster.minor is not None and cluster.minor < ON_SINCE:
        yield Finding(
            check=Check.FEATURES_SCHEDULER,
            severity=Severity.NOTE,
            subject="kube-scheduler",
            message=f"whether it has the gate {BINDING} too cannot be seen from here; without, it skips fabric devices",
            remedy=f"look for --feature-gates={BINDING}=true in its command line",
        )


def _taints(cluster: observed.Cluster, features: observed.Features) -> Finding:
    match features.form:
        case encoding.Encoding.PER_DEVICE:
            return findings.ok(Check.FEATURES_TAINTS, "device taints", "the API server keeps them")
        case encoding.Encoding.TAINT_SLICE:
            text = "the API server takes them in slices of their own (KEP-5055 as proposed), and so they are published"
            return findings.ok(Check.FEATURES_TAINTS, "device taints", text)
        case _:
            return Finding(
                check=Check.FEATURES_TAINTS,
                severity=Severity.WARNING,
                subject="device taints",
                message=(
                    f"the API server drops them without a word ({_why(cluster.minor, TAINTS)}); a device that should "
                    "have one is withdrawn instead, a failed one has no probation, and pods are not evicted from a lost one"
                ),
                remedy=_remedy(
                    cluster.minor, TAINTS, "kube-apiserver, kube-scheduler and kube-controller-manager"
                ),
            )


def _details(features: observed.Features) -> Iterator[Finding]:
    lost = sorted(encoding.DETAILS - features.details)
    if lost and features.form is not encoding.Encoding.WITHDRAWN:
        yield Finding(
            check=Check.FEATURES_TAINT_DETAILS,
            severity=Severity.NOTE,
            subject="device taints",
            message=f"have no {', '.join(lost)} here, as in every release up to 1.37; key, value and effect say the rest",
            remedy="nothing: docs/conditions.md explains each taint",
        )


def _rules(cluster: observed.Cluster) -> Iterator[Finding]:
    rules = cluster.taint_rules
    if isinstance(rules, Unread):
        yield findings.unread(Check.FEATURES_TAINT_RULES, rules)
    elif rules and cluster.minor == RULES_END_SCHEDULER:
        yield Finding(
            check=Check.FEATURES_TAINT_RULES,
            severity=Severity.WARNING,
            subject="DeviceTaintRules",
            message=(
                f"are served as {', '.join(rules)}; where the gate {RULES} is on in kube-scheduler 1.36 too, it ends at the "
                "next change of a ResourceSlice while there is a rule, and at each start after that"
            ),
            remedy=(
                f"take {RULES} out of kube-scheduler's --feature-gates (a rule then evicts, and keeps no pod away), or use 1.37"
            ),
        )
    elif rules:
        yield findings.ok(Check.FEATURES_TAINT_RULES, "DeviceTaintRules", f"are served as {', '.join(rules)}")
    else:
        yield Finding(
            check=Check.FEATURES_TAINT_RULES,
            severity=Severity.NOTE,
            subject="DeviceTaintRules",
            message="are not served: an administrator cannot taint devices by a rule of Kubernetes",
            remedy="name devices in a Fabric's spec.maintenance, which does the same for fabric devices, or use 1.37",
        )


def _why(minor: int | None, gate: str) -> str:
    if minor is None:
        return f"the feature gate {gate} is off"
    if minor < ON_SINCE:
        return f"Kubernetes 1.{minor} has them behind the feature gate {gate}, which is off by default"
    return f"Kubernetes 1.{minor} has them by default, so somebody has turned the feature gate {gate} off"


def _remedy(minor: int | None, gate: str, programs: str) -> str:
    if minor is not None and minor >= ON_SINCE:
        return f"take {gate}=false out of --feature-gates of {programs}"
    return f"start {programs} with --feature-gates={gate}=true, or upgrade to Kubernetes 1.36 or later"
