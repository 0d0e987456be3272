"""The doctor against API servers of each release, real ones as far as the protocol goes."""

import asyncio
import collections
import contextlib
import re
from pathlib import Path

import msgspec
import pytest
import yaml

from drawbar.driver.cli.doctor import observation, observed, permissions, plan, reading, reviews
from drawbar.driver.cli.doctor.findings import Severity, Unread
from drawbar.driver.kube import client, config, discovery, errors, kinds, sessions
from drawbar.mocks import apiserver
from drawbar.mocks.apiserver import faults, profiles
from drawbar.mocks.cluster import deployment

DOCS = Path(__file__).parents[4] / "docs"
WHERE = observed.Where(
    driver="drawbar.dev",
    namespace="drawbar",
    lease="drawbar-controller",
    controller="drawbar-controller",
    node="drawbar-node",
)


CLUSTER_ROLE = deployment.KINDS["ClusterRole"]


class Cluster:
    """An API server with our definitions, and the doctor's look at it as any caller."""

    def __init__(self, folder, server, api):
        self.folder, self.server, self.api = folder, server, api

    def connection(self, user="admin"):
        path = self.folder / user.replace(":", "-")
        return config.from_kubeconfig(self.server.kubeconfig(path, user))

    async def look(self, user="admin", **options):
        return await observation.observe(self.connection(user), WHERE, **options)

    async def findings(self, user="admin"):
        return plan.plan(await self.look(user))

    async def make(self, kind, name, **content):
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}
        return await self.api.create(kind, body | content, into=dict)


@pytest.fixture
def serving(tmp_path):
    @contextlib.asynccontextmanager
    async def serving(profile="1.36", gates=None, deployed=True):
        async with (
            apiserver.serving(profile=profile, gates=gates) as server,
            client.connecting(config.from_kubeconfig(server.kubeconfig(tmp_path / "admin"))) as api,
        ):
            if deployed:
                version = profiles.profile(profile).dynamic_version
                await deployment.apply(api, policies=True, version=version)
            yield Cluster(tmp_path, server, api)

    return serving


def unlike(findings, *topics):
    return {
        f"{finding.severity} {finding.check}"
        for finding in findings
        if finding.severity is not Severity.OK and (not topics or finding.check.topic in topics)
    }


@pytest.mark.parametrize(
    ("profile", "lacking"),
    [
        (
            "1.34",
            {"error features.binding-conditions", "warning features.taints", "note features.taint-rules"},
        ),
        ("1.36", {"note features.taint-rules"}),
        ("1.37", set()),
        # Its version is of 1.36, and whether the scheduler has the gate cannot be seen.
        ("kep-5055", {"warning features.taint-rules"}),
    ],
)
async def test_the_missing_features_of_each_release_are_reported(serving, profile, lacking):
    async with serving(profile) as cluster:
        findings = await cluster.findings()
    assert unlike(findings, "server", "features", "access") == lacking
    assert Severity.UNCHECKED not in {finding.severity for finding in findings}
    for finding in findings:
        if (
            finding.check.topic == "features"
            and profile == "1.34"
            and finding.severity in ("error", "warning")
        ):
            assert "1.34" in finding.message
            assert "--feature-gates=" in finding.remedy


@pytest.mark.parametrize(("profile", "served"), [("1.30-classic", "v1alpha2"), ("1.31-classic", "v1alpha3")])
async def test_a_classic_release_is_reported_without_an_error(serving, profile, served):
    async with serving(profile) as cluster:
        status = {"status": {"nodeInfo": {"kubeletVersion": f"v{profile.partition('-')[0]}.0"}}}
        await cluster.make(kinds.NODE, "node-1")
        merge = {"content": client.Patch.MERGE, "subresource": "status", "into": dict}
        await cluster.api.patch(kinds.NODE, "node-1", status, **merge)
        seen = await cluster.look()
        await cluster.api.delete(CLUSTER_ROLE, "drawbar-controller-classic")
        without = await cluster.findings()
    findings = plan.plan(seen)
    assert unlike(findings, "server", "features", "access") == {
        "note server.resource-api",
        "note features.taint-rules",
    }
    (missing_api,) = [finding for finding in findings if finding.check == "server.resource-api"]
    assert f"({served} is)" in missing_api.message
    assert "https://drawbar.dev/docs/classic" in missing_api.remedy
    assert [finding.severity for finding in findings if finding.check == "nodes.kubelet"] == [Severity.OK]
    missing = [
        finding for finding in without if finding.check == "access.permission" and finding.severity == "error"
    ]
    # Whatever the role grants was missed: it grants nothing that the controller does not ask for.
    manifest = yaml.safe_load_all((deployment.folder() / deployment.CLASSES[served][0]).read_text())
    (role,) = [document for document in manifest if document["kind"] == "ClusterRole"]
    granted = {
        f"may not {', '.join(rule['verbs'])} {resource}"
        for rule in role["rules"]
        for resource in rule["resources"]
    }
    assert {finding.message.partition(":")[0].partition(" of ")[0] for finding in missing} == granted
    assert {finding.remedy for finding in missing} == {
        "apply deploy/manifests/classic/controller-classic.yaml, or set classic.enabled in the chart's values"
    }


async def test_a_gate_that_was_turned_on_or_off_counts_and_not_the_release(serving):
    on = {"DRADeviceBindingConditions": True, "DRADeviceTaints": True}
    async with serving("1.34", on) as cluster:
        findings = unlike(await cluster.findings(), "features")
        assert findings == {"note features.scheduler"}
    async with serving("1.37", {"DRADeviceBindingConditions": False}) as cluster:
        (findings,) = [
            finding for finding in await cluster.findings() if finding.check == "features.binding-conditions"
        ]
        assert findings.severity is Severity.ERROR
        assert "DRADeviceBindingConditions=false" in findings.remedy


async def test_a_cluster_without_drawbar_is_reported(serving):
    async with serving(deployed=False) as cluster:
        findings = unlike(await cluster.findings(), "server", "access", "controller")
    assert findings == {"error server.definition", "error access.account", "error controller.leader"}


def rules(role):
    """Yield the role without each of its rules in turn."""
    for number in range(len(role["rules"])):
        yield role | {"rules": role["rules"][:number] + role["rules"][number + 1 :]}


async def apply(api, role):
    kind, name = deployment.KINDS[role["kind"]], role["metadata"]["name"]
    await api.replace(kind, name, role, namespace=role["metadata"].get("namespace"), into=dict)


async def test_each_rule_of_the_deployed_roles_that_is_taken_away_is_missed(serving):
    needed = permissions.list_permissions(
        driver=WHERE.driver, namespace="drawbar", lease=WHERE.lease, secrets=("fabric-credentials",)
    )
    async with serving() as cluster:
        reader = reading.Reader(cluster.api)
        for answer in await reviews.ask(reader, WHERE, needed):
            assert answer.allowed, answer.permission
        deployed = [
            document
            for document in deployment.documents(deployment.folder())
            if document["kind"].endswith("Role")
        ]
        assert len(deployed) == 4
        for role in deployed:
            for less in rules(role):
                await apply(cluster.api, less)
                daemon = "node" if "node" in role["metadata"]["name"] else "controller"
                asked = [permission for permission in needed if permission.daemon == daemon]
                assert not all(answer.allowed for answer in await reviews.ask(reader, WHERE, asked)), less
            await apply(cluster.api, role)


async def test_a_missing_permission_is_one_finding_with_its_consequences(serving):
    async with serving() as cluster:
        await cluster.make(
            kinds.FABRIC,
            "rack",
            spec={"adapter": "grpc", "endpoint": "unix:/x", "credentialsSecretRef": {"name": "other"}},
        )
        roles = [
            document
            for document in deployment.documents(deployment.folder())
            if document["kind"] == "ClusterRole"
        ]
        node = next(role for role in roles if role["metadata"]["name"] == "drawbar-node")
        node["rules"] = [rule for rule in node["rules"] if rule["resources"] != ["resourceslices"]]
        await apply(cluster.api, node)
        findings = [finding for finding in await cluster.findings() if finding.check == "access.permission"]
    secret, slices = sorted(
        (finding for finding in findings if finding.severity is Severity.ERROR),
        key=lambda finding: finding.subject,
    )
    assert "list, watch secrets other" in secret.message
    assert "add other to" in secret.remedy
    assert "list, watch, create, update, delete resourceslices" in slices.message


async def test_devices_that_are_reserved_for_claims_without_an_allocator_are_an_error(serving):
    policy = {"immediate": {"models": ["V80"]}}
    async with serving() as cluster:
        spec = {"adapter": "grpc", "endpoint": "unix:/x", "policy": policy}
        await cluster.make(kinds.FABRIC, "rack", spec=spec)
        findings = [finding for finding in await cluster.findings() if finding.check == "access.permission"]
        (text,) = re.findall(
            r"```yaml\n(apiVersion: rbac.*?)```", (DOCS / "immediate.md").read_text(), re.DOTALL
        )
        for document in yaml.safe_load_all(text):
            await cluster.api.create(deployment.KINDS[document["kind"]], document, into=dict)
        allowed = [finding for finding in await cluster.findings() if finding.check == "access.permission"]
    wrong = [finding for finding in findings if finding.severity is Severity.ERROR]
    assert [finding.message.partition(" of ")[0] for finding in wrong] == [
        "may not get resourceclaims",
        "may not get deviceclasses",
        "may not patch resourceclaims/binding",
    ]
    assert all("controller.config.immediateAllocation" in finding.remedy for finding in wrong)
    assert {finding.severity for finding in allowed} == {Severity.OK}


def documented_role():
    (text,) = re.findall(r"```yaml\n(.*?)```", (DOCS / "doctor.md").read_text(), re.DOTALL)
    return yaml.safe_load(text)


async def bind(api, role, user):
    await api.create(deployment.KINDS["ClusterRole"], role, into=dict)
    body = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "doctor"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": role["metadata"]["name"],
        },
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}],
    }
    await api.create(deployment.KINDS["ClusterRoleBinding"], body, into=dict)


async def test_the_documented_role_is_enough_and_each_rule_of_it_is_needed(serving):
    role = documented_role()
    async with serving() as cluster:
        await bind(cluster.api, role, "eve")
        assert not [
            finding for finding in await cluster.findings("eve") if finding.severity is Severity.UNCHECKED
        ]
        for less in rules(role):
            await apply(cluster.api, less)
            unchecked = [
                finding for finding in await cluster.findings("eve") if finding.severity is Severity.UNCHECKED
            ]
            assert unchecked, less
            assert all(
                "https://drawbar.dev/docs/doctor has a role for it" in finding.remedy for finding in unchecked
            ), less


async def test_a_daemon_checks_itself_and_lists_the_unreadable_parts(serving):
    async with serving() as cluster:
        findings = await cluster.findings("drawbar:drawbar-node")
    access = {
        finding.subject: finding.severity for finding in findings if finding.check == "access.permission"
    }
    assert access["ServiceAccount drawbar/drawbar-node"] is Severity.OK
    assert access["controller's permissions"] is Severity.UNCHECKED


async def test_a_read_that_hangs_or_fails_costs_only_itself(serving):
    async with serving() as cluster:
        for resource, effect in (("pods", faults.Partition()), ("nodes", faults.Refusal(code=500))):
            cluster.server.faults.add(faults.Fault(select=faults.Selection(resource=resource), effect=effect))
        seen = await cluster.look(deadline_seconds=0.5)
    lost = {name for name, reading in msgspec.structs.asdict(seen).items() if isinstance(reading, Unread)}
    assert {"pods", "nodes"} <= lost
    assert "no answer within 0.5 s" in seen.pods.why
    assert {"unchecked nodes.kubelet"} <= unlike(plan.plan(seen))


@pytest.mark.parametrize("resource", ["resourceslices", "resourceclaims"])
@pytest.mark.parametrize(
    ("effect", "why", "remedy"),
    [
        pytest.param(faults.Refusal(code=403), "403", "may list {}", id="forbidden"),
        pytest.param(faults.Refusal(code=500), "500", "/readyz", id="failing"),
        pytest.param(faults.Partition(), "no answer within", "/readyz", id="silent"),
    ],
)
async def test_devices_and_claims_that_cannot_be_read_are_not_called_sound(
    serving, resource, effect, why, remedy
):
    async with serving() as cluster:
        select = faults.Selection(verb="list", resource=resource)
        cluster.server.faults.add(faults.Fault(select=select, effect=effect))
        findings = plan.plan(await cluster.look(deadline_seconds=0.5))
    checks = ["claims.allocated", *(["devices.tainted"] if resource == "resourceslices" else [])]
    found = {finding.check: finding for finding in findings if finding.check in checks}
    assert {finding.severity for finding in found.values()} == {Severity.UNCHECKED}
    assert sorted(found) == checks
    assert all(why in finding.message for finding in found.values())
    assert all(remedy.format(resource) in finding.remedy for finding in found.values())


async def test_devices_are_not_called_sound_if_the_served_versions_are_unknown(serving, monkeypatch):
    async def fail(api, group):
        raise errors.Unreachable("GET /apis: 503")

    monkeypatch.setattr(discovery, "resources", fail)
    async with serving() as cluster:
        findings = await cluster.findings()
    assert {"unchecked devices.tainted", "unchecked claims.allocated"} <= unlike(findings)


async def test_the_doctor_lists_each_kind_once(serving, monkeypatch):
    listed = collections.Counter()
    list_all = client.Client.list_all

    def count(api, kind, *, namespace=None, **options):
        listed[kind.plural, namespace] += 1
        return list_all(api, kind, namespace=namespace, **options)

    async with serving() as cluster:
        await cluster.make(kinds.FABRIC, "rack", spec={"adapter": "grpc", "endpoint": "unix:/x"})
        monkeypatch.setattr(client.Client, "list_all", count)
        await cluster.look()
    assert set(listed.values()) == {1}
    of_devices = ("fabrics", "resourceslices", "deviceattachments", "resourceclaims", "nodes")
    assert all(listed[plural, None] for plural in of_devices)


async def test_the_reports_of_a_real_controller_are_passed_on(controller_world, until):
    async with controller_world() as world:
        for name in ("node-1", "node-2"):
            status = {"nodeInfo": {"kubeletVersion": "v1.36.2", "containerRuntimeVersion": "cri-o://1.36.0"}}
            await world.api.patch(
                kinds.NODE,
                name,
                {"status": status},
                content=client.Patch.MERGE,
                into=dict,
                subresource="status",
            )
        await world.make_fabric()
        await world.make_fabric(
            "deaf", endpoint=f"unix:{world.path / 'absent'}", hosts=[{"host": "h", "node": "typo"}]
        )
        await world.make_fabric("poor", credentialsSecretRef={"name": "fabric-credentials"})
        world.start()

        async def look():
            admin = config.from_kubeconfig(world.path / "admin")
            return plan.plan(await observation.observe(admin, WHERE))

        wrong = {
            ("error", "fabrics.connected", "Fabric deaf"),
            ("error", "hosts.mapped", "Fabric deaf"),
            ("error", "fabrics.credentials", "Fabric poor"),
        }
        well = {
            ("ok", "fabrics.connected", "Fabric fab"),
            ("ok", "controller.leader", "Lease drawbar/drawbar-controller"),
            ("ok", "hosts.mapped", "Fabric fab"),
            ("ok", "nodes.kubelet", "2 nodes: node-1, node-2"),
        }

        def is_reported(findings):
            reported = {(finding.severity, finding.check, finding.subject) for finding in findings}
            clocks = {finding.severity for finding in findings if finding.check == "clocks.controller"}
            return (
                well <= reported
                and wrong == {row for row in reported if row[0] == "error"}
                and clocks == {"ok"}
            )

        await until(look, is_reported)


WRITES = (
    ("controller", "", "nodes", "a label of node node-1"),
    ("controller", "resource.k8s.io", "resourceslices", "a ResourceSlice"),
    ("controller", "drawbar.dev", "deviceattachments", "a DeviceAttachment"),
    ("controller", "drawbar.dev", "deviceattachments/status", "the status of DeviceAttachment fab.disk-0"),
    ("controller", "drawbar.dev", "fabrics/status", "the status of Fabric fab"),
    ("controller", "resource.k8s.io", "resourceclaims/status", "the status of claim default/c1"),
    ("node", "resource.k8s.io", "resourceslices", "a ResourceSlice of node node-1"),
    ("node", "drawbar.dev", "deviceattachments/status", "the status of DeviceAttachment fab.disk-0"),
    ("node", "resource.k8s.io", "resourceclaims/status", "the status of claim default/c1"),
)


@contextlib.asynccontextmanager
async def denying(api, daemon, group, resource):
    """Have an admission policy refuse what a daemon writes of a kind, inside the block."""
    user = f"system:serviceaccount:drawbar:drawbar-{daemon}"
    rule = {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "resources": [resource],
        "operations": ["CREATE", "UPDATE"],
    }
    policy = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": f"request.userInfo.username != '{user}'", "message": "not today"}],
    }
    made = (
        (kinds.ADMISSION_POLICY, policy),
        (kinds.ADMISSION_BINDING, {"policyName": "deny", "validationActions": ["Deny"]}),
    )
    for kind, spec in made:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "deny"}, "spec": spec}
        await api.create(kind, body, into=dict)
    yield
    for kind, _ in made:
        await api.delete(kind, "deny")


async def test_the_daemons_writes_are_tried_as_their_accounts_and_nothing_is_stored(controller_world, until):
    async with controller_world() as world:
        for document in deployment.documents(deployment.folder()):
            if document["kind"].startswith("ValidatingAdmission"):
                await world.api.create(deployment.KINDS[document["kind"]], document, into=dict)
        world.start()
        await world.make_fabric()
        await world.wait_for_slices()
        await world.allocate("disk-0")
        await until(world.device_conditions, lambda value: "attached" in value.get("disk-0", {}))
        await until(
            world.attachments,
            lambda value: value["fab.disk-0"].get("status", {}).get("phase") == "Attached",
        )
        await world.stop()
        admin = config.from_kubeconfig(world.path / "admin")

        async def findings_of_writes():
            seen = await observation.observe(admin, WHERE)
            return [finding for finding in plan.plan(seen) if finding.check == "access.writes"]

        kept = [kinds.NODE, kinds.SLICE, kinds.ATTACHMENT, kinds.FABRIC, kinds.CLAIM]
        before = [(await world.api.list_all(kind, into=dict)).items for kind in kept]
        controller, node = await findings_of_writes()
        assert (controller.severity, node.severity) == (Severity.OK, Severity.OK), (controller, node)
        for daemon, _, _, what in WRITES:
            assert what in (controller if daemon == "controller" else node).message
        assert [(await world.api.list_all(kind, into=dict)).items for kind in kept] == before
        for daemon, group, resource, what in WRITES:
            async with denying(world.api, daemon, group, resource):
                wrong = [
                    finding for finding in await findings_of_writes() if finding.severity is not Severity.OK
                ]
            assert [finding.severity for finding in wrong] == [Severity.ERROR], what
            assert wrong[0].subject == f"ServiceAccount drawbar/drawbar-{daemon}"
            assert f"refuses {what}, " in wrong[0].message
            assert "not today" in wrong[0].message


async def test_without_the_right_to_impersonate_it_is_reported_that_writes_were_not_tried(serving):
    async with serving() as cluster:
        await cluster.make(kinds.NODE, "n1")
        await bind(cluster.api, documented_role(), "eve")
        findings = [finding for finding in await cluster.findings("eve") if finding.check == "access.writes"]
    assert [finding.severity for finding in findings] == [Severity.NOTE, Severity.NOTE]
    assert all("may impersonate the service account" in finding.remedy for finding in findings)


async def test_an_address_where_no_api_server_is_ends_with_a_sentence(tmp_path):
    async def other(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(other, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        connection = sessions.Connection(
            server=f"http://127.0.0.1:{port}", tls=None, authorization=lambda: None, origin="here"
        )
        with pytest.raises(reading.CannotCheck, match="is it the right address"):
            await observation.observe(connection, WHERE)


@pytest.mark.parametrize("year", ["2026 ", "9" * 20], ids=["without a zone", "beyond all years"])
async def test_a_date_of_the_api_server_that_is_none_is_no_clock(year):
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        date = f"Date: Thu, 01 Jan {year} 00:00:00\r\n".encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n" + date + b"\r\n{}")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        connection = sessions.Connection(server=url, tls=None, authorization=lambda: None, origin="here")
        assert (await reading.read_clock(connection)).date is None
