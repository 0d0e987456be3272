"""What the doctor makes of what it saw of a cluster."""

import datetime

import msgspec
import pytest
from tests.scenes import attachments as scenes

from drawbar.driver.api import attachments, core, fabrics, leftout, maintenances, meta, otherslices, slices
from drawbar.driver.cli.doctor import findings, observed, permissions, plan
from drawbar.driver.cli.doctor.findings import Severity, Unread
from drawbar.driver.controller import daemons
from drawbar.driver.slices import encoding
from drawbar.mocks.cluster import deployment

NOW, SECOND = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), datetime.timedelta(seconds=1)
LOST = Unread(what="it", why="GET: 403 no", permission="list it")


def ago(seconds):
    return meta.timestamp(NOW - seconds * SECOND)


def condition(kind, status, reason):
    return meta.Condition(
        type=kind, status=status, reason=reason, message="words", last_transition_time=ago(200)
    )


def conditions(*entries):
    return tuple(entry if isinstance(entry, meta.Condition) else condition(*entry) for entry in entries)


WELL = (
    ("Connected", "True", "Connected"),
    ("Degraded", "False", "Healthy"),
    ("FeaturesDropped", "False", "AllKept"),
    ("HostsMapped", "True", "HostsMapped"),
    ("Published", "True", "Published"),
    ("Writable", "True", "Accepted"),
)


def fabric(*entries, name="rack", driver="drawbar.dev", created=500, **spec):
    replaced = {entry[0]: entry for entry in entries}
    usual = [replaced.pop(entry[0], entry) for entry in WELL]
    return fabrics.Fabric(
        metadata=meta.ObjectMeta(name=name, creation_timestamp=ago(created)),
        spec=fabrics.FabricSpec(adapter="grpc", endpoint="unix:/x", driver=driver, **spec),
        status=fabrics.FabricStatus(conditions=conditions(*usual)),
    )


def attachment(*entries, name="rack.gpu", deleted=None, started=500, at="n1", **status):
    times = {"created": ago(started), "deleting": ago(deleted) if deleted else None}
    device = {"fabric": "rack", "device": "gpu", "pool": "rack/e", "node_name": at}
    return scenes.attachment(*conditions(*entries), name=name, **times, **device, **status)


def node(
    name="n1",
    *,
    labels=None,
    kubelet="v1.36.1",
    runtime="containerd://2.1.4",
    ready="True",
    uuid="",
    capacity=None,
):
    return otherslices.Node(
        metadata=meta.ObjectMeta(
            name=name, labels={"fabric.drawbar.dev/rack": "true"} if labels is None else labels
        ),
        status=otherslices.NodeStatus(
            capacity=capacity or {},
            node_info=core.NodeInfo(
                kubelet_version=kubelet, container_runtime_version=runtime, system_uuid=uuid or f"UUID-{name}"
            ),
            conditions=(core.NodeCondition(type="Ready", status=ready),),
        ),
    )


def pod(name="n1", ready="True", account="drawbar-node", phase="Running"):
    return core.Pod(
        metadata=meta.ObjectMeta(name=f"drawbar-node-{name}"),
        spec=core.PodSpec(node_name=name, service_account_name=account),
        status=core.PodStatus(phase=phase, conditions=conditions(("Ready", ready, "X"))),
    )


def lease(name="drawbar-controller", *, age=2, skew=0, holder="c-0", written=True, renewed=""):
    """Return a lease renewed `age` seconds ago by a holder whose clock is `skew` seconds ahead."""
    moment = NOW - age * SECOND
    fields = msgspec.Raw(b'{"f:spec":{"f:renewTime":{}}}')
    entry = observed.ManagedFields(time=meta.timestamp(moment), fields_v1=fields)
    return observed.Lease(
        metadata=observed.LeaseMeta(
            name=name, managed_fields=(observed.ManagedFields(time=ago(0)), entry) if written else ()
        ),
        spec=core.LeaseSpec(
            holder_identity=holder,
            lease_duration_seconds=15,
            renew_time=renewed or (moment + (0.4 + skew) * SECOND).isoformat(),
        ),
    )


def list_deployed_objects(kind):
    """Return the objects of a kind as they are applied, with what the API server adds to them."""
    documents = deployment.documents(deployment.folder(), policies=True)
    established = {"status": {"conditions": [{"type": "Established", "status": "True"}]}}
    return [document | established for document in documents if document["kind"] == kind]


def read(kind, into):
    return tuple(msgspec.convert(document, into) for document in list_deployed_objects(kind))


def clock(ahead=0.0):
    ours = NOW + ahead * SECOND
    return observed.Clock(before=ours, date=NOW.replace(microsecond=0), after=ours + 0.1 * SECOND)


WHERE = observed.Where(
    driver="drawbar.dev",
    namespace="drawbar",
    lease="drawbar-controller",
    controller="drawbar-controller",
    node="drawbar-node",
)
NEEDED = permissions.list_permissions(
    driver="drawbar.dev", namespace="drawbar", lease="drawbar-controller", secrets=("s",)
)
FEATURES = observed.Features(dropped=(), form=encoding.Encoding.PER_DEVICE, details=encoding.DETAILS)


def maintenance(reason, status, *, driver="drawbar.dev"):
    condition = meta.Condition(
        type="Applied", status=status, reason=reason, message="m", last_transition_time=""
    )
    return maintenances.Maintenance(
        metadata=meta.ObjectMeta(name="work"),
        spec=maintenances.MaintenanceSpec(fabric="rack", driver=driver, devices=("d",)),
        status=maintenances.MaintenanceStatus(conditions=(condition,)),
    )


HEALTHY = observed.Cluster(
    where=WHERE,
    server="https://x",
    clock=clock(),
    version="v1.37.0",
    resource_versions=("v1",),
    taint_rules=("v1",),
    definitions={
        definition.metadata.name: definition
        for definition in read("CustomResourceDefinition", observed.Definition)
    },
    features=FEATURES,
    accounts={"drawbar-controller": True, "drawbar-node": True},
    access=tuple(permissions.Answer(permission=permission, allowed=True) for permission in NEEDED),
    trials=tuple(permissions.Trial(daemon=daemon, what="a slice") for daemon in permissions.Daemon),
    policies=read("ValidatingAdmissionPolicy", observed.Policy),
    bindings=read("ValidatingAdmissionPolicyBinding", observed.Binding),
    lease=lease(),
    nodes=(node(),),
    node_leases=(lease("n1"),),
    pods=(pod(),),
    published=(),
    fabrics=(fabric(),),
    maintenances=(maintenance("Applied", "True"),),
    attachments=(attachment(("Attached", "True", "A"), ("Visible", "True", "V")),),
)


def problems(**changes):
    """Return the findings that are not OK, as `severity check`."""
    reported = plan.plan(msgspec.structs.replace(HEALTHY, **changes))
    assert all(finding.message for finding in reported)
    assert all(finding.remedy for finding in reported if finding.severity is not Severity.OK), reported
    return {
        f"{finding.severity} {finding.check}" for finding in reported if finding.severity is not Severity.OK
    }


@pytest.mark.parametrize(
    ("reason", "status", "expected"),
    [
        ("Applied", "True", set()),
        ("PartlyApplied", "True", {"warning fabrics.maintenance"}),
        ("NothingMatches", "False", {"warning fabrics.maintenance"}),
        ("Pending", "Unknown", {"warning fabrics.maintenance"}),
    ],
)
def test_a_maintenance_that_is_not_wholly_in_effect_is_a_warning(reason, status, expected):
    assert problems(maintenances=(maintenance(reason, status),)) == expected
    assert problems(maintenances=(maintenance(reason, status, driver="other.example.com"),)) == set()


def case(title, *expected, **changes):
    return pytest.param(changes, set(expected), id=title)


def trial(**changes):
    return permissions.Trial(daemon=permissions.Daemon.NODE, what="a slice", **changes)


def features(*dropped, form="per-device", details=encoding.DETAILS):
    return observed.Features(dropped=dropped, form=encoding.Encoding(form), details=details)


def test_a_healthy_cluster_gives_cause_for_nothing_and_every_topic_speaks():
    reported = plan.plan(HEALTHY)
    assert {finding.severity for finding in reported} == {Severity.OK}
    # Those of `drawbar explain` and of a node are not of a whole cluster.
    rest = {"host", "pods", "claims"}
    assert {check.check.topic for check in reported} == {check.topic for check in findings.Check} - rest
    assert findings.exit_status(reported) == 0


BOUND = ("bindsToNode", "bindingConditions", "bindingFailureConditions")
OLD = {"version": "v1.33.4", "resource_versions": (), "features": None, "nodes": (node(kubelet="v1.33.4"),)}
TOLD = fabric(("FeaturesDropped", "True", "FieldsDropped"))
STRANGE = {"version": "x", "features": features(*BOUND)}
MANY_SKEWED = [lease(f"n{number}", skew=9) for number in range(9)]
SKEWED = (lease("n1", skew=3), lease("n2", skew=-31), lease("n3"))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        case("old", "error server.version", "error server.resource-api", "warning nodes.kubelet", **OLD),
        case("newer than tried", "note server.version", version="v1.38.0"),
        case("no version at all", "note server.version", version="strange"),
        case("no v1", "error server.resource-api", resource_versions=("v1beta1",), features=None),
        case("binding conditions dropped", "error features.binding-conditions", features=features(*BOUND)),
        case("taints dropped", "warning features.taints", features=features("taints", form="withdrawn")),
        case("taints in slices of their own", features=features(form="taint-slice")),
        case("taints without details", features=features(details=frozenset())),
        case("no rules", "note features.taint-rules", taint_rules=()),
        case("rules on 1.36", "warning features.taint-rules", taint_rules=("v1beta2",), version="v1.36.2"),
        case("gates on 1.35", "note features.scheduler", "warning nodes.kubelet", version="v1.35.1"),
        case("told of features", "error features.binding-conditions", features=LOST, fabrics=(TOLD,)),
        case("told that all are kept", features=LOST),
        case("gates", "note server.version", "error features.binding-conditions", **STRANGE),
        case("no account", "error access.account", accounts=HEALTHY.accounts | {"drawbar-node": False}),
        case("a write that is refused", "error access.writes", trials=(trial(refused="422 no such key"),)),
        case("a write that was not tried", "note access.writes", trials=(trial(tried=False),)),
        case("no policies", "warning access.policies", policies=()),
        case("policies that are not in force", "warning access.policies", bindings=()),
        case("policies not seen", "unchecked access.policies", policies=LOST),
        case("no lease", "error controller.leader", lease=None),
        case("lease given back", "error controller.leader", lease=lease(holder="")),
        case("lease run out", "error controller.leader", lease=lease(age=25)),
        case("lease renewed a moment late", lease=lease(age=18)),
        case("by renewTime alone", "error controller.leader", lease=lease(age=25, written=False)),
        case("leader 10 s ahead", "warning clocks.controller", lease=lease(skew=10)),
        case("leader 40 s behind", "error clocks.controller", lease=lease(skew=-40)),
        case("we are ahead", "warning clocks.here", clock=clock(ahead=5)),
        case("we are behind", "warning clocks.here", clock=clock(ahead=-5)),
        case("whole seconds of a header", clock=clock(ahead=1.5)),
        case("no header", "unchecked clocks.here", clock=msgspec.structs.replace(clock(), date=None)),
        case("nodes' clocks", "warning clocks.node", "error clocks.node", node_leases=SKEWED),
        case("many nodes' clocks", "warning clocks.node", node_leases=MANY_SKEWED),
        case("strange times", "error controller.leader", lease=lease(renewed="strange", written=False)),
        case("kubelet far too old", "error nodes.kubelet", nodes=(node(kubelet="v1.31.9"),)),
        case("a kubelet without a daemon", nodes=(node(), node("n2", labels={}, kubelet="v1.20.0"))),
        case("kubelet not tried", "warning nodes.kubelet", nodes=(node(kubelet="v1.33.0"),)),
        case("kubelet too new", "warning nodes.kubelet", nodes=(node(kubelet="v1.38.0"),)),
        case("containerd 1.6", "error nodes.runtime", nodes=(node(runtime="containerd://1.6.36"),)),
        case(
            "a runtime with a version of 5,000 digits",
            "note nodes.runtime",
            nodes=(node(runtime=f"containerd://{'1' * 5000}.7"),),
        ),
        case("containerd 1.7", "warning nodes.runtime", nodes=(node(runtime="containerd://1.7.28"),)),
        case("CRI-O 1.22", "error nodes.runtime", nodes=(node(runtime="cri-o://1.22.0"),)),
        case("CRI-O 1.34", nodes=(node(runtime="cri-o://1.34.0"),)),
        case("another runtime", "note nodes.runtime", nodes=(node(runtime="docker://28.1.0"),)),
        case(
            "a node with a device is gone",
            "warning nodes.ready",
            nodes=(node("n2"),),
            node_leases=(lease("n2"),),
            pods=(pod("n2"),),
        ),
        case("a node with a device is away", "warning nodes.ready", nodes=(node(ready="Unknown"),)),
        case("a daemon is not ready", "error nodes.daemon", pods=(pod(ready="False"),)),
        case("a node of the fabric without a daemon", "error nodes.daemon", nodes=(node(), node("n2"))),
        case(
            "a host by a label without a daemon",
            "error nodes.daemon",
            nodes=(node(), node("n2", labels={"rack/slot": "7"})),
            fabrics=(fabric(node_label="rack/slot"),),
        ),
        case(
            "a host of the Fabric without a daemon",
            "error nodes.daemon",
            nodes=(node(), node("n2", labels={})),
            fabrics=(fabric(hosts=(fabrics.HostMapping(host="h", node="n2"),)),),
        ),
        case(
            "a host of another driver's Fabric without a daemon",
            "note fabrics.served",
            nodes=(node(), node("n2", labels={})),
            fabrics=(
                fabric(),
                fabric(name="o", driver="x.com", hosts=(fabrics.HostMapping(host="h", node="n2"),)),
            ),
        ),
        case("no daemon at all", "warning nodes.daemon", pods=(pod(phase="Failed"),)),
        case("only other pods", "warning nodes.daemon", pods=(pod(account="other"),)),
        case(
            "a node that no fabric reaches",
            "warning hosts.node",
            pods=(pod(), pod("n2")),
            nodes=(node(), node("n2", labels={})),
        ),
        case("clones", "warning hosts.ambiguous", nodes=(node(uuid="A"), node("n2", labels={}, uuid="a "))),
    ],
)
def test_problems_of_the_cluster_are_reported(changes, expected):
    assert problems(**changes) == expected


def silent(*names):
    """Return a Fabric whose status names these nodes as having no living daemon."""
    message = f"host h is avoided; {daemons.trouble(names)}; d0 has no room for its taints"
    degraded = meta.Condition(type="Degraded", status="True", reason="Troubles", message=message)
    usual = fabric()
    kept = [condition for condition in usual.status.conditions if condition.type != degraded.type]
    return msgspec.structs.replace(usual, status=fabrics.FabricStatus(conditions=(*kept, degraded)))


@pytest.mark.parametrize(
    ("node_name", "pods", "words"),
    [
        pytest.param("n2", (pod(),), "node n2: a fabric reaches it", id="no-pod"),
        pytest.param("n2", (pod(), pod("n2", ready="False")), "node n2: the pod drawbar", id="pod-not-ready"),
        pytest.param("n2", (pod(), pod("n2")), "node n2: the node daemon is Ready there", id="not-selected"),
        pytest.param("gone", (pod(),), None, id="no-such-node"),
    ],
)
def test_a_mapped_node_whose_daemon_the_controller_does_not_see_is_an_error(node_name, pods, words):
    nodes = (node(), node("n2", labels={}))
    judged = plan.plan(
        msgspec.structs.replace(HEALTHY, nodes=nodes, pods=pods, fabrics=(silent(node_name, "elsewhere"),))
    )
    lines = [
        f"{finding.subject}: {finding.message}"
        for finding in judged
        if finding.check is findings.Check.NODES_DAEMON and finding.severity is Severity.ERROR
    ]
    assert [line[: len(words)] for line in lines] == ([words] if words else [])


def test_the_nodes_that_the_controller_names_are_read_from_its_words():
    for count in (0, 1, 3, 10, 17):
        silent_nodes = [f"n{number}.example.com" for number in range(count)]
        sentence = f"first; {daemons.trouble(silent_nodes)}; last"
        assert daemons.find_named_nodes(sentence) == tuple(silent_nodes[: daemons.NAMED_MAX])


HOSTS = (fabrics.HostMapping(host="h", node="n9"),)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        case("connecting", "warning fabrics.connected", condition=("Connected", "False", "Connecting")),
        case(
            "served by no controller", "error fabrics.served", condition=("Connected", "Unknown", "Pending")
        ),
        case("silent", "error fabrics.connected", condition=("Connected", "False", "Unavailable")),
        case(
            "misconfigured",
            "error fabrics.connected",
            condition=("Connected", "False", "InvalidConfiguration"),
        ),
        case(
            "no Secret", "error fabrics.credentials", condition=("Connected", "False", "CredentialsMissing")
        ),
        case(
            "wrong password", "error fabrics.credentials", condition=("Connected", "False", "Unauthenticated")
        ),
        case("degraded", "warning fabrics.degraded", condition=("Degraded", "True", "Troubles")),
        case("refused", "error fabrics.published", condition=("Published", "False", "Refused")),
        case("writes refused", "error fabrics.writable", condition=("Writable", "False", "Refused")),
        case("deleting", "note fabrics.published", condition=("Published", "False", "Deleting")),
        case("no host mapped", "error hosts.mapped", condition=("HostsMapped", "False", "HostsNotMapped")),
        case("no such node", "error hosts.mapped", hosts=HOSTS),
        case("a label that no node has", "warning hosts.mapped", node_label="rack/slot"),
        case("a label that a node has", node_label="fabric.drawbar.dev/rack"),
        case("no certificate asked", "warning fabrics.connected", tls=fabrics.Tls(verify=False)),
    ],
)
def test_problems_of_a_fabric_are_reported(changes, expected):
    condition = changes.pop("condition", WELL[0])
    assert problems(fabrics=(fabric(condition, **changes),)) == expected


@pytest.mark.parametrize(
    ("created", "severity"), [(500, "error"), (5, "note")], ids=["for long", "just made"]
)
def test_a_fabric_without_conditions_is_an_error_unless_it_was_just_made(created, severity):
    unserved = msgspec.structs.replace(fabric(created=created), status=fabrics.FabricStatus())
    assert problems(fabrics=(unserved,)) == {f"{severity} fabrics.served"}


def test_a_fabric_of_another_driver_is_named_and_not_judged():
    other = fabric(("Connected", "False", "Unavailable"), name="other", driver="gpu.example.com")
    assert problems(fabrics=(fabric(), other)) == {"note fabrics.served"}


ATTACHED, VISIBLE = ("Attached", "True", "A"), ("Visible", "True", "V")
ILL = attachments.NodeReport(health="Unhealthy", health_message="ill")
FAILED = attachments.Failure(reason="LinkDown", message="m")


def make_attachment_case(title, expected, *entries, **changes):
    return pytest.param(attachment(*entries, **changes), expected, id=title)


def make_attached_condition(when):
    return meta.Condition(type="Attached", status="True", last_transition_time=when)


@pytest.mark.parametrize(
    ("attachment", "expected"),
    [
        make_attachment_case("attaching for too long", "error attachments.attach"),
        make_attachment_case("attaching", None, started=100),
        make_attachment_case("never seen", "error attachments.visible: is silent", ATTACHED),
        make_attachment_case("not seen yet", None, make_attached_condition(ago(80))),
        make_attachment_case("attached at a strange time", None, make_attached_condition("strange")),
        make_attachment_case(
            "not ready", "error attachments.visible: cable", ATTACHED, ("Visible", "False", "LinkDown")
        ),
        make_attachment_case("the node is silent", "error attachments.detach: is silent", deleted=100),
        make_attachment_case(
            "in use",
            "error attachments.detach: end this use",
            ("Released", "False", "InUse"),
            deleted=100,
        ),
        make_attachment_case(
            "being erased",
            "note attachments.detach: wait for the erase to end",
            ("Released", "False", "Cleaning"),
            deleted=100,
        ),
        make_attachment_case(
            "the fabric hangs",
            "error attachments.detach: has released",
            ("Released", "True", "R"),
            deleted=100,
        ),
        make_attachment_case("detaching", None, deleted=10),
        make_attachment_case("the node is gone", "error attachments.detach: is gone", deleted=100, at="gone"),
        make_attachment_case("failed", "warning attachments.failed", error=FAILED),
        make_attachment_case("ill", "warning attachments.health", ATTACHED, VISIBLE, node=ILL),
        make_attachment_case(
            "of another driver than its Fabric", "error attachments.orphaned", driver="gpu.example.com"
        ),
    ],
)
def test_problems_of_an_attachment_are_reported(attachment, expected):
    check, _, word = (expected or "").partition(": ")
    assert problems(attachments=(attachment,)) == ({check} if check else set())
    reported = plan.plan(msgspec.structs.replace(HEALTHY, attachments=(attachment,)))
    assert any(word in finding.message + finding.remedy for finding in reported)


def test_an_attachment_without_its_fabric_is_an_orphan():
    assert problems(fabrics=()) == {"note fabrics.served", "error attachments.orphaned"}


def test_an_outage_is_reported_on_a_page():
    many = tuple(attachment(name=f"rack.gpu-{number}") for number in range(500))
    reported = [
        finding
        for finding in plan.plan(msgspec.structs.replace(HEALTHY, attachments=many))
        if finding.check.topic == "attachments"
    ]
    assert len(reported) == 51
    assert reported[0].severity is Severity.ERROR
    assert any("450 more" in finding.subject for finding in reported)


@pytest.mark.parametrize(
    ("runtime", "words"), [("docker://28.1.0", "docker://28.1.0"), ("", "which is empty")]
)
def test_an_unknown_container_runtime_is_reported_with_its_version(runtime, words):
    reported = plan.plan(msgspec.structs.replace(HEALTHY, nodes=(node(runtime=runtime),)))
    (message,) = [finding.message for finding in reported if finding.check == "nodes.runtime"]
    assert message == (
        f"the container runtime's version, {words}, does not show whether containers get their devices (CDI)"
    )


def test_nodes_with_the_same_trouble_are_one_finding():
    many = tuple(
        node(f"n{number}", kubelet="v1.31.0", runtime="containerd://1.6.0") for number in range(5000)
    )
    pods = tuple(pod(node.metadata.name) for node in many)
    reported = plan.plan(msgspec.structs.replace(HEALTHY, nodes=many, pods=pods, node_leases=()))
    assert [finding.check.value for finding in reported if finding.severity is Severity.ERROR] == [
        "nodes.kubelet",
        "nodes.runtime",
    ]


READINGS = [
    name
    for name, reading in msgspec.structs.asdict(HEALTHY).items()
    if isinstance(reading, tuple) and name != "unreadable"
]


def test_a_silent_manager_is_asked_by_a_command_with_its_name():
    silent = fabric(("Connected", "False", "Unavailable"))
    reported = plan.plan(msgspec.structs.replace(HEALTHY, fabrics=(silent,)))
    [found] = [finding for finding in reported if finding.severity is Severity.ERROR]
    assert found.remedy.startswith("drawbar fabric check rack;")


@pytest.mark.parametrize("field", [*READINGS, "lease", "features"])
def test_unreadable_objects_are_a_finding_and_never_an_error(field):
    several = {"access": "node's permissions", "trials": "node's writes"}
    lost = (msgspec.structs.replace(LOST, what=several[field]),) if field in several else LOST
    # What the controller reports in a Fabric stands in for a probe that is not allowed.
    silent = {"fabrics": (), "attachments": ()} if field == "features" else {}
    reported = plan.plan(msgspec.structs.replace(HEALTHY, **silent | {field: lost}))
    assert Severity.UNCHECKED in {finding.severity for finding in reported}
    assert len(set(reported)) == len(reported), "both daemons lack the same object"
    assert findings.exit_status(reported) == 3


SHARED = ("Exclusive", "False", "OfferedByAnotherDriver")
GPU = {"identity": attachments.Identity(device_class="gpu", pci_id="10de:2330")}


def exclusive(**changes):
    reported = plan.plan(msgspec.structs.replace(HEALTHY, **changes))
    return [finding for finding in reported if finding.check is findings.Check.ATTACHMENTS_EXCLUSIVE]


def test_a_device_that_another_driver_offers_too_is_an_error_with_its_words():
    visible = ("Visible", "True", "V")
    (finding,) = exclusive(attachments=(attachment(visible, SHARED), attachment(visible, name="rack.b")))
    assert (finding.severity, finding.subject) == (Severity.ERROR, "attachment rack.gpu")
    assert finding.message == "words"
    assert "https://drawbar.dev/docs/beside-other-drivers" in finding.remedy
    ended = ("Exclusive", "True", "OfferedByThisDriver")
    assert exclusive(attachments=(attachment(visible, ended),)) == []
    many = tuple(attachment(visible, SHARED, name=f"rack.gpu-{number}") for number in range(500))
    reported = exclusive(attachments=many)
    assert len(reported) == 51
    assert "450 more" in reported[-1].message or "450 more" in reported[0].message


@pytest.mark.parametrize(
    ("name", "resource", "expected"),
    [
        pytest.param("n1", "nvidia.com/gpu", True, id="its-plugin"),
        pytest.param("n2", "nvidia.com/gpu", False, id="another-node"),
        pytest.param("n1", "amd.com/gpu", False, id="another-vendor"),
        pytest.param("n1", "x.io/y", False, id="an-unknown-plugin"),
    ],
)
def test_a_device_plugin_for_cards_of_an_attached_ones_kind_is_a_warning(name, resource, expected):
    attached = attachment(("Visible", "True", "V"), **GPU)
    reported = exclusive(attachments=(attached,), nodes=(node(name, capacity={resource: "8"}),))
    assert [finding.severity for finding in reported] == [Severity.WARNING] * expected
    assert all("nvidia.com/gpu" in finding.message for finding in reported)


def test_an_attachment_whose_kind_is_not_known_is_no_devices_of_a_plugin():
    for device_class, pci_id in (("gpu", ""), ("toaster", "10de:2330"), ("gpu", "nonsense")):
        identity = attachments.Identity(device_class=device_class, pci_id=pci_id)
        attached = attachment(("Visible", "True", "V"), identity=identity)
        assert exclusive(attachments=(attached,), nodes=(node(capacity={"nvidia.com/gpu": "8"}),)) == []


def test_the_devices_that_nodes_leave_to_others_are_notes():
    left = [leftout.LeftOut(device=f"gpu-{number}", why="driver", reason="R") for number in range(3)]
    published = tuple(
        slices.ResourceSlice(
            metadata=meta.ObjectMeta(name=name, annotations={leftout.ANNOTATION: text}),
            spec=slices.SliceSpec(
                driver="drawbar.dev",
                pool=slices.Pool(name=name, generation=1, resource_slice_count=1),
                node_name=name,
            ),
        )
        for name, text in (("n1", leftout.encode(left)), ("n2", "not ours"))
    )
    reported = plan.plan(msgspec.structs.replace(HEALTHY, published=published))
    (finding,) = (each for each in reported if each.check is findings.Check.NODES_LEFT_OUT)
    assert (finding.severity, finding.subject) == (Severity.NOTE, "node n1")
    assert finding.message == "gpu-0 and 2 more not offered: R"
    assert "localPool.despiteOthers" in finding.remedy
