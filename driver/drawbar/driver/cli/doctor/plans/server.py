"""The API server's fitness for Drawbar: its version, its served kinds, and the fields that it drops; pure.

The program's own types are the reference for the custom kinds. The API server drops a field that is
not in the schema, without an error. Further fields in the schema come from a newer program.

Source of the releases' defaults: Kubernetes feature gates, 1.34 to 1.37.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from drawbar.driver.api import attachments, fabrics, maintenances, meta
from drawbar.driver.catalogue import links
from drawbar.driver.cli.doctor import findings, observed
from drawbar.driver.cli.doctor.findings import Check, Finding, Unread
from drawbar.driver.cli.doctor.observed import Reading
from drawbar.driver.kube import exclusions
from drawbar.driver.slices import encoding

VERSION = "v1alpha1"
FABRICS = "fabrics.drawbar.dev"
ATTACHMENTS = "deviceattachments.drawbar.dev"
MAINTENANCES = "maintenances.drawbar.dev"
_SELECTABLE = ".spec.driver"
_APPLY = "apply the CRDs of this version (deploy/drawbar/definitions/), or upgrade the chart with crds.install=true"


class _Part(NamedTuple):
    """One half of an object (`spec` or `status`), and its type."""

    name: str
    type: type[meta.Struct]


KINDS: Mapping[str, tuple[_Part, ...]] = {
    FABRICS: (_Part("spec", fabrics.FabricSpec), _Part("status", fabrics.FabricStatus)),
    MAINTENANCES: (
        _Part("spec", maintenances.MaintenanceSpec),
        _Part("status", maintenances.MaintenanceStatus),
    ),
    ATTACHMENTS: (_Part("spec", attachments.AttachmentSpec), _Part("status", attachments.AttachmentStatus)),
}


def plan_definitions(
    definitions: Mapping[str, Reading[observed.Definition | None]], *, selectable: bool = True
) -> Iterator[Finding]:
    """Yield a finding for each trouble of our kinds, or one that all is well.

    Args:
        definitions: our kinds by name.
        selectable: whether this API server can select objects by a field of ours.
    """
    for name in KINDS:
        definition = definitions[name]
        if isinstance(definition, Unread):
            yield findings.make_unread(Check.SERVER_DEFINITION, definition)
            continue
        complaints = list(_complaints(name, definition, selectable))
        yield from complaints or [
            findings.make_ok(
                Check.SERVER_DEFINITION,
                f"CRD {name}",
                f"{VERSION} is served, with the schema of this program",
            )
        ]


def plan_objects(unreadable: Iterable[exclusions.Unreadable]) -> Iterator[Finding]:
    """Yield a finding for each object that no part of Drawbar can read."""
    for left in unreadable:
        yield findings.make_error(
            Check.SERVER_OBJECTS, left.subject, f"is left out, since it {left.problem}", left.remedy
        )


def _complaints(name: str, definition: observed.Definition | None, selectable: bool) -> Iterator[Finding]:
    if definition is None:
        yield _error(name, "does not exist", "apply deploy/drawbar/definitions/, or install the chart")
        return
    version = next((served for served in definition.spec.versions if served.name == VERSION), None)
    if version is None or not version.served:
        yield _error(name, f"does not serve {VERSION}", _APPLY)
        return
    if not meta.is_true(definition.status.conditions or (), "Established"):
        yield _error(
            name,
            "is not established: the API server does not serve it yet, or refuses it",
            f"kubectl describe crd {name}, and follow its conditions",
        )
    if "status" not in version.subresources:
        yield _error(name, "has no status subresource, so no status can be written", _APPLY)
    if selectable and {"jsonPath": _SELECTABLE} not in version.selectable_fields:
        yield _error(
            name, f"has no selectable field {_SELECTABLE}, so the controller cannot ask for its own", _APPLY
        )
    yield from _fields(name, version)


def _fields(name: str, version: observed.DefinitionVersion) -> Iterator[Finding]:
    ours = {path for part in KINDS[name] for path in paths(part)}
    theirs, open_ = schema_paths(version.schema.get("openAPIV3Schema", {}))
    lost = sorted(path for path in ours - theirs if not any(path.startswith(prefix) for prefix in open_))
    if lost:
        yield _error(
            name,
            f"is older than this program: the API server drops {findings.join_names(lost)} without a word",
            _APPLY,
        )
    # Drawbar knows only the fields below the two halves.
    newer = sorted(path for path in theirs - ours if path.startswith(("spec.", "status.")))
    if newer:
        yield findings.make_warning(
            Check.SERVER_DEFINITION,
            f"CRD {name}",
            f"is newer than this program, which does not know {findings.join_names(newer)}",
            "run the doctor, and the daemons, of the version that the CRDs are of",
        )


def _error(name: str, message: str, remedy: str) -> Finding:
    return findings.make_error(Check.SERVER_DEFINITION, f"CRD {name}", message, remedy)


def paths(part: _Part) -> frozenset[str]:
    """Return the path of every field that this program knows, such as `spec.policy.models[].model`."""
    return frozenset(_list_paths_below(part.name, msgspec.inspect.type_info(part.type)))


def _list_paths_below(path: str, kind: msgspec.inspect.Type) -> Iterator[str]:
    match kind:
        case msgspec.inspect.StructType(fields=fields):
            for field in fields:
                yield f"{path}.{field.encode_name}"
                yield from _list_paths_below(f"{path}.{field.encode_name}", field.type)
        case msgspec.inspect.VarTupleType(item_type=item):
            yield from _list_paths_below(f"{path}[]", item)
        case msgspec.inspect.UnionType(types=types):
            for kind_below in types:
                yield from _list_paths_below(path, kind_below)
        case _:
            return


def schema_paths(schema: Mapping[str, Any]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the paths in a schema, and the paths that take anything below them."""
    closed, open_ = set(), set()
    for path, node in _walk("", schema):
        closed.add(path)
        if node.get("x-kubernetes-preserve-unknown-fields"):
            open_.add(path)
    return frozenset(closed), frozenset(open_)


def _walk(path: str, node: Mapping[str, Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    if path and not path.endswith("[]"):
        yield path, node
    for name, child in (node.get("properties") or {}).items():
        yield from _walk(f"{path}.{name}".lstrip("."), child)
    if isinstance(node.get("items"), dict):
        yield from _walk(f"{path}[]", node["items"])


BINDING = "DRADeviceBindingConditions"
TAINTS = "DRADeviceTaints"
ON_SINCE = 36
"""Before this minor version both gates are alpha and off; from it on they are on by default."""
RULES = "DRADeviceTaintRules"
RULES_END_SCHEDULER = 36
"""The scheduler of this minor version expects another type of rules than it lists; source: resourceslice/tracker of 1.36.2, `typedSlice`."""


def plan_features(cluster: observed.Cluster) -> Iterator[Finding]:
    """Yield the findings on each feature that Drawbar can use."""
    features = cluster.features
    if isinstance(features, Unread):
        yield _hearsay(cluster, features)
    elif features is not None:
        yield from _check_binding_conditions(cluster, features)
        yield _taints(cluster, features)
        yield from _details(features)
    yield from _rules(cluster)


def _hearsay(cluster: observed.Cluster, lost: Unread) -> Finding:
    """Return the finding by the Fabrics' conditions, in which the controller reports the same test."""
    for fabric in observed.get_objects(cluster.fabrics):
        condition = meta.find(fabric.status.conditions, fabrics.FEATURES_DROPPED)
        if condition is not None and condition.is_true:
            return findings.make_error(
                Check.FEATURES_BINDING_CONDITIONS,
                f"Fabric {fabric.metadata.name}",
                f"its controller says: {condition.message}",
                _remedy(cluster.minor, BINDING, "kube-apiserver and kube-scheduler"),
            )
        if condition is not None:
            text = f"the controller of Fabric {fabric.metadata.name} reports that all are kept"
            return findings.make_ok(Check.FEATURES_BINDING_CONDITIONS, "fields of devices", text)
    return findings.make_unread(Check.FEATURES_BINDING_CONDITIONS, lost)


def _check_binding_conditions(cluster: observed.Cluster, features: observed.Features) -> Iterator[Finding]:
    lost = [field for field in features.dropped if field != "taints"]
    if lost:
        yield findings.make_error(
            Check.FEATURES_BINDING_CONDITIONS,
            "binding conditions",
            (
                f"the API server drops {', '.join(lost)} without a word ({_why(cluster.minor, BINDING)}); a pod would "
                "start before its device is attached, so no fabric device is published. Devices that live in a node "
                "are offered all the same"
            ),
            _remedy(cluster.minor, BINDING, "kube-apiserver and kube-scheduler"),
        )
        return
    yield findings.make_ok(
        Check.FEATURES_BINDING_CONDITIONS, "binding conditions", "the API server keeps them"
    )
    if cluster.minor is not None and cluster.minor < ON_SINCE:
        yield findings.make_note(
            Check.FEATURES_SCHEDULER,
            "kube-scheduler",
            f"whether it has the gate {BINDING} too cannot be seen from here; without, it skips fabric devices",
            f"look for --feature-gates={BINDING}=true in its command line",
        )


def _taints(cluster: observed.Cluster, features: observed.Features) -> Finding:
    match features.form:
        case encoding.Encoding.PER_DEVICE:
            return findings.make_ok(Check.FEATURES_TAINTS, "device taints", "the API server keeps them")
        case encoding.Encoding.TAINT_SLICE:
            text = "the API server takes them in slices of their own (KEP-5055 as proposed), and so they are published"
            return findings.make_ok(Check.FEATURES_TAINTS, "device taints", text)
        case _:
            return findings.make_warning(
                Check.FEATURES_TAINTS,
                "device taints",
                (
                    f"the API server drops them without a word ({_why(cluster.minor, TAINTS)}); a device that should "
                    "have one is withdrawn instead, a failed one has no probation, and pods are not evicted from a lost one"
                ),
                _remedy(cluster.minor, TAINTS, "kube-apiserver, kube-scheduler and kube-controller-manager"),
            )


def _details(features: observed.Features) -> Iterator[Finding]:
    lost = sorted(encoding.DETAILS - features.details)
    if lost and features.form is not encoding.Encoding.WITHDRAWN:
        text = f"have no {', '.join(lost)} here, as in every release up to 1.37; key, value and effect say the rest"
        yield findings.make_ok(Check.FEATURES_TAINT_DETAILS, "device taints", text)


def _rules(cluster: observed.Cluster) -> Iterator[Finding]:
    rules = cluster.taint_rules
    if isinstance(rules, Unread):
        yield findings.make_unread(Check.FEATURES_TAINT_RULES, rules)
    elif rules and cluster.minor == RULES_END_SCHEDULER:
        yield findings.make_warning(
            Check.FEATURES_TAINT_RULES,
            "DeviceTaintRules",
            (
                f"are served as {', '.join(rules)}; where the gate {RULES} is on in kube-scheduler 1.36 too, it ends at the "
                "next change of a ResourceSlice while there is a rule"
            ),
            f"take {RULES} out of kube-scheduler's --feature-gates (a rule then evicts, and keeps no pod away), or use 1.37",
        )
    elif rules:
        yield findings.make_ok(
            Check.FEATURES_TAINT_RULES, "DeviceTaintRules", f"are served as {', '.join(rules)}"
        )
    else:
        yield findings.make_note(
            Check.FEATURES_TAINT_RULES,
            "DeviceTaintRules",
            "are not served: an administrator cannot taint devices by a rule of Kubernetes",
            "use drawbar maintenance on device/NAME, which does the same for fabric devices, or use 1.37",
        )


def _why(minor: int | None, gate: str) -> str:
    if minor is None:
        return f"the feature gate {gate} is off"
    if minor < ON_SINCE:
        return f"Kubernetes 1.{minor} has them behind the feature gate {gate}, which is off by default"
    return f"Kubernetes 1.{minor} has them by default, so an administrator has turned the feature gate {gate} off"


def _remedy(minor: int | None, gate: str, programs: str) -> str:
    if minor is not None and minor >= ON_SINCE:
        return f"take {gate}=false out of --feature-gates of {programs}"
    return f"start {programs} with --feature-gates={gate}=true, or upgrade to Kubernetes 1.36 or later"


OLDEST, NEWEST = 34, 37
"""The minor versions of Kubernetes that the tests cover."""


def plan(cluster: observed.Cluster) -> Iterator[Finding]:
    """Yield the findings on the API server's version and its served kinds."""
    yield _version(cluster)
    yield _resource_api(cluster)
    if isinstance(cluster.contexts, Unread):
        yield findings.make_unread(Check.SERVER_RESOURCE_API, cluster.contexts)
    # The controller filters its own objects itself if the API server cannot, before 1.31.
    yield from plan_definitions(cluster.definitions, selectable=cluster.classic != "v1alpha2")
    yield from plan_objects(cluster.unreadable)


def _version(cluster: observed.Cluster) -> Finding:
    subject, check = f"API server {cluster.server}", Check.SERVER_VERSION
    minor = cluster.minor
    if minor is None or minor > NEWEST:
        return findings.make_note(
            check,
            subject,
            f"is Kubernetes {cluster.version}, and this version was tried with 1.{OLDEST} to 1.{NEWEST}",
            "read the release notes of a newer Drawbar",
        )
    if cluster.classic:
        return findings.make_ok(check, subject, f"is Kubernetes {cluster.version}, with classic allocation")
    if minor < OLDEST:
        return findings.make_error(
            check,
            subject,
            f"is Kubernetes {cluster.version}; Drawbar needs 1.{OLDEST} or later, or classic allocation",
            "upgrade Kubernetes, best to 1.36 or later",
        )
    return findings.make_ok(check, subject, f"is Kubernetes {cluster.version}")


def _resource_api(cluster: observed.Cluster) -> Finding:
    versions = cluster.resource_versions
    if isinstance(versions, Unread):
        return findings.make_unread(Check.SERVER_RESOURCE_API, versions)
    served = ", ".join(versions) or "nothing"
    if "v1" in versions:
        return findings.make_ok(Check.SERVER_RESOURCE_API, "resource.k8s.io", f"is served as {served}")
    if cluster.classic:
        return findings.make_note(
            Check.SERVER_RESOURCE_API,
            "resource.k8s.io",
            (
                f"v1 is not served ({served} is): Drawbar's controller allocates. Nodes' own devices are not offered, only "
                "the controller knows taints, and only the DeviceAttachments show the state of an attach"
            ),
            f"{links.url('classic.md')} has all limits; on 1.36 and later there are none of these",
        )
    return findings.make_error(
        Check.SERVER_RESOURCE_API,
        "resource.k8s.io",
        f"v1 is not served ({served} is): there is no dynamic resource allocation that Drawbar can use",
        f"upgrade Kubernetes to 1.{OLDEST} or later, and take resource.k8s.io/v1=false out of --runtime-config",
    )
