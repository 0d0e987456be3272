"""The doctor's judgement of definitions, of a container runtime's configuration and of a node; its report."""

import copy
import datetime
import io
import json
import re
from pathlib import Path

import msgspec
import pytest
from rich import console

from drawbar.driver.api import core, leftout, meta
from drawbar.driver.cli.doctor import findings, observed, report
from drawbar.driver.cli.doctor.findings import Check, Finding, Severity, Unread
from drawbar.driver.cli.doctor.plans import host, machine, server
from drawbar.driver.node.inventory import resources
from drawbar.mocks.cluster import deployment

CRDS = {
    document["metadata"]["name"]: document
    | {"status": {"conditions": [{"type": "Established", "status": "True"}]}}
    for document in deployment.documents(deployment.folder())
    if document["kind"] == "CustomResourceDefinition"
}
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


def unlike(listed):
    return {
        f"{finding.severity} {finding.check}" for finding in listed if finding.severity is not Severity.OK
    }


def version(crd):
    return crd["spec"]["versions"][0]


def properties(crd, *path):
    schema = version(crd)["schema"]["openAPIV3Schema"]
    for name in path:
        schema = schema["properties"][name]
    return schema["properties"]


def older(crd):
    del properties(crd, "spec", "policy")["probationSeconds"]


def newer(crd):
    properties(crd, "spec")["colour"] = {"type": "string"}


def permissive(crd):
    older(crd)
    version(crd)["schema"]["openAPIV3Schema"]["properties"]["spec"][
        "x-kubernetes-preserve-unknown-fields"
    ] = True


def stop_serving(crd):
    version(crd)["served"] = False


def without_status(crd):
    del version(crd)["subresources"]


def without_selector(crd):
    del version(crd)["selectableFields"]


def clear_conditions(crd):
    # As the API server shows it when it was just made.
    crd["status"]["conditions"] = None


@pytest.mark.parametrize(
    ("change", "severity", "word"),
    [
        (older, "error", "spec.policy.probationSeconds"),
        (newer, "warning", "spec.colour"),
        (permissive, None, ""),
        (stop_serving, "error", "v1alpha1"),
        (without_status, "error", "status subresource"),
        (without_selector, "error", ".spec.driver"),
        (clear_conditions, "error", "established"),
    ],
)
def test_a_definition_of_another_version_is_reported_with_its_differences(change, severity, word):
    changed = copy.deepcopy(CRDS)
    change(changed[server.FABRICS])
    definitions = {name: msgspec.convert(crd, observed.Definition) for name, crd in changed.items()}
    reported = list(server.plan_definitions(definitions))
    assert unlike(reported) == ({f"{severity} server.definition"} if severity else set())
    assert not severity or any(
        word in finding.message for finding in reported if finding.severity == severity
    )


V2, V3 = '[plugins."io.containerd.grpc.v1.cri"]\n', "[plugins.'io.containerd.cri.v1.runtime']\n"
CONTAINERD, CRIO = "/etc/containerd/config.toml", "/etc/crio/crio.conf"


def files(*texts, name="containerd", path=CONTAINERD):
    return tuple(host.File(runtime=name, path=path, text=text) for text in texts)


@pytest.mark.parametrize(
    ("runtime_files", "version", "cdi_dir", "expected"),
    [
        pytest.param(files(f"version = 2\n{V2}enable_cdi = true"), "", "/var/run/cdi", "ok", id="turned on"),
        pytest.param(files("version = 2"), "", "/var/run/cdi", "error", id="not turned on"),
        pytest.param(files("version = 3"), "", "/var/run/cdi", "ok", id="on by default"),
        pytest.param(
            files("version = 2"), "containerd://2.1.0", "/var/run/cdi", "ok", id="old form, new containerd"
        ),
        pytest.param(
            files("version = 3"), "containerd://1.7.2", "/var/run/cdi", "error", id="the kubelet knows better"
        ),
        pytest.param(
            files(f"version = 3\n{V3}enable_cdi = false"), "", "/var/run/cdi", "error", id="turned off"
        ),
        pytest.param(
            files(f"version = 2\n{V2}enable_cdi = false", f"{V2}enable_cdi = true"),
            "",
            "/run/cdi",
            "ok",
            id="a later file",
        ),
        pytest.param(
            files(f"version = 3\n{V3}cdi_spec_dirs = ['/etc/cdi']"),
            "",
            "/var/run/cdi",
            "error",
            id="elsewhere",
        ),
        pytest.param(
            files(f"version = 3\n{V3}cdi_spec_dirs = ['/run/cdi']"),
            "",
            "/var/run/cdi",
            "ok",
            id="by another name",
        ),
        pytest.param(files("", name="cri-o", path=CRIO), "", "/var/run/cdi", "ok", id="CRI-O"),
        pytest.param(
            files("[crio.runtime]\ncdi_spec_dirs = []", name="cri-o", path=CRIO),
            "",
            "/var/run/cdi",
            "error",
            id="CRI-O elsewhere",
        ),
        pytest.param(
            (host.File(runtime="containerd", path=CONTAINERD, problem="Permission denied"),),
            "",
            "/var/run/cdi",
            "unchecked",
            id="not readable",
        ),
        pytest.param(files("= 2"), "", "/var/run/cdi", "unchecked", id="not TOML"),
        pytest.param(files("plugins = 1\nversion = 3"), "", "/var/run/cdi", "ok", id="strange types"),
        pytest.param(
            files("version = 2"), "cri-o://1.34.0", "/var/run/cdi", None, id="of a runtime that is not in use"
        ),
    ],
)
def test_the_runtimes_configuration_decides_about_cdi(runtime_files, version, cdi_dir, expected):
    reported = [finding.severity for finding in host.plan_runtime(runtime_files, cdi_dir, version)]
    assert reported == ([expected] if expected else [])


REGISTRY = "/var/lib/kubelet/plugins_registry"
ALIVE = host.Socket(path=f"{REGISTRY}/drawbar.dev-a-reg.sock", knock=host.Knock.ANSWERS)
DEAD = host.Socket(path=f"{REGISTRY}/drawbar.dev-b-reg.sock", knock=host.Knock.REFUSES)
NODE = core.Node(
    metadata=meta.ObjectMeta(name="n1"),
    status=core.NodeStatus(node_info=core.NodeInfo(container_runtime_version="containerd://2.1.0")),
)
LOST = Unread(what="Node n1", why="403", permission="get nodes")
WELL = host.Host(
    node_name="n1",
    problems=(),
    fatal=(),
    warnings=(),
    sockets=(ALIVE,),
    too_long="",
    registry=(REGISTRY, True),
    alive=host.Page(good=True, text="{}"),
    ready=host.Page(good=True, text="{}"),
    runtime_files=files("version = 3"),
    cdi_dir="/var/run/cdi",
    clock=observed.Clock(before=NOW, date=NOW, after=NOW),
    offline="",
    node=NODE,
    machine=machine.Machine(
        ports=(
            machine.Port(
                address="0000:00:03.0",
                slot="1",
                driver="pciehp",
                buses=(1, 8),
                windows=resources.Windows(memory=1 << 30, prefetchable=1 << 40),
            ),
        ),
        iommu=machine.Iommu(groups=1),
    ),
)


def test_a_healthy_node_gives_cause_for_nothing():
    assert {finding.severity for finding in host.plan(WELL)} == {Severity.OK}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"problems": ("no node name",)}, {"error host.settings"}),
        ({"fatal": ("cannot write /var/run/cdi",)}, {"error host.pod"}),
        ({"left_out": (leftout.LeftOut(device="gpu-1", reason="R"),)}, {"note host.left-out"}),
        ({"left_out": LOST}, {"unchecked host.left-out"}),
        ({"warnings": ("CAP_SYS_ADMIN is missing",)}, {"warning host.pod"}),
        ({"sockets": None, "too_long": "the path is too long"}, {"error host.sockets"}),
        ({"registry": (REGISTRY, False)}, {"error host.sockets"}),
        ({"sockets": ()}, {"error host.sockets"}),
        ({"sockets": (DEAD, ALIVE)}, {"warning host.sockets"}),
        ({"sockets": (DEAD,)}, {"error host.sockets", "warning host.sockets"}),
        (
            {"alive": host.Page(good=None, text="no answer"), "ready": host.Page(good=None, text="")},
            {"error host.daemon"},
        ),
        ({"ready": host.Page(good=False, text="{}")}, {"error host.daemon"}),
        ({"alive": None, "ready": None}, {"note host.daemon"}),
        ({"runtime_files": None}, set()),
        ({"runtime_files": None, "node": LOST}, {"note host.cdi", "unchecked host.settings"}),
        ({"runtime_files": (), "node": LOST}, {"note host.cdi", "unchecked host.settings"}),
        ({"node": None}, {"error host.settings"}),
        ({"node": LOST}, {"unchecked host.settings"}),
        ({"machine": machine.Machine(problem="no answer")}, {"unchecked host.hotplug"}),
        ({"clock": None, "node": None, "offline": "no kubeconfig"}, {"unchecked clocks.here"}),
    ],
    ids=[
        "settings",
        "does not start",
        "a device is left to another",
        "who has the devices is unknown",
        "something will not work",
        "too long",
        "not the kubelet's directory",
        "not registered",
        "left by a dead one",
        "all dead",
        "no answer",
        "not ready",
        "no probes",
        "the release tells enough",
        "configuration not read",
        "no configuration",
        "no such node",
        "node not read",
        "ports not read",
        "no API server",
    ],
)
def test_problems_of_a_node_are_reported_with_remedies(changes, expected):
    reported = host.plan(msgspec.structs.replace(WELL, **changes))
    assert unlike(reported) == expected
    assert all(finding.remedy for finding in reported if finding.severity is not Severity.OK)


@pytest.mark.parametrize("runtime", ["", "containerd://1.7.2", "docker://29.0.1"])
@pytest.mark.parametrize("is_read", [False, True])
def test_a_command_that_has_just_run_is_no_remedy(is_read, runtime):
    node = LOST
    if runtime:
        info = core.NodeInfo(container_runtime_version=runtime)
        node = core.Node(metadata=NODE.metadata, status=core.NodeStatus(node_info=info))
    files = () if is_read else None
    reported = host.plan(msgspec.structs.replace(WELL, runtime_files=files, node=node))
    (remedy,) = [each.remedy for each in reported if each.check in (Check.HOST_CDI, Check.NODES_RUNTIME)]
    assert ("--host-root" in remedy) != is_read
    assert ("containerd config dump" in remedy) == is_read


FINDINGS = (
    findings.make_ok(Check.SERVER_VERSION, "API server x", "is Kubernetes v1.36.2"),
    Finding(
        check=Check.NODES_KUBELET,
        severity=Severity.ERROR,
        subject="node n1",
        message="kubelet v1.31 " + "is far too old " * 10,
        remedy="upgrade it",
    ),
)


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("brief", [False, True])
def test_the_table_fits_its_width_and_has_everything(width, brief):
    out = console.Console(file=io.StringIO(), width=width)
    report.show(out, FINDINGS, brief=brief)
    text = out.file.getvalue()
    # In a pipe each finding stays one line.
    assert width == 160 or max(len(line) for line in text.splitlines()) <= width
    words = " ".join(text.split())
    for expected in ("nodes.kubelet", "node n1", "far too old", "-> upgrade it", "1 error; 1 check passed"):
        assert expected in words
    assert ("API server x" in words) == (not brief)


def test_the_json_has_findings_sums_and_the_exit_status():
    reported = json.loads(json.dumps(report.document(FINDINGS, {"server": "x"})))
    assert reported["server"] == "x"
    assert (reported["exitStatus"], reported["summary"]["error"], reported["summary"]["ok"]) == (1, 1, 1)
    assert reported["findings"][1]["check"] == "nodes.kubelet"
    assert reported["findings"][1].keys() == {"check", "severity", "subject", "message", "remedy", "url"}


def test_the_url_of_each_check_is_an_anchor_of_the_page():
    page = (Path(__file__).parents[4] / "docs" / "reference" / "checks.md").read_text()
    anchors = re.findall(r'<a id="([\w.-]+)"></a>', page)
    assert sorted(anchors) == sorted(check.value for check in Check)
    for check in Check:
        finding = findings.make_ok(check, "s", "m")
        assert report.url(finding).rpartition("#")[2] in anchors


@pytest.mark.parametrize(
    ("severities", "status"),
    [((), 0), (("warning", "note"), 0), (("unchecked", "warning"), 3), (("unchecked", "error"), 1)],
    ids=["nothing", "warnings", "not everything seen", "errors count more"],
)
def test_the_exit_status_follows_from_the_worst(severities, status):
    reported = [
        Finding(check=Check.HOST_CDI, severity=Severity(severity), subject="s", message="m", remedy="r")
        for severity in severities
    ]
    assert findings.exit_status(reported) == status


def test_so_much_of_a_long_text_of_a_node_is_shown():
    finding = Finding(
        check=Check.NODES_RUNTIME, severity=Severity.NOTE, subject="node n1", message="7" * 1_000_000
    )
    out = console.Console(file=io.StringIO(), width=200)
    report.show(out, [finding], brief=False)
    assert len(out.file.getvalue()) < 2 * report.MESSAGE_BYTES
    assert len(json.dumps(report.document([finding], {}))) < 2 * report.MESSAGE_BYTES
