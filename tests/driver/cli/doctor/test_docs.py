"""The pages on the doctor and on troubleshooting are true: commands run, checks are all there, numbers hold."""

import asyncio
import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from drawbar.driver import main
from drawbar.driver.catalogue import checks
from drawbar.driver.cli.doctor import findings
from drawbar.driver.cli.doctor.plans import attachments, clocks, server
from drawbar.driver.kube import client, config, kinds
from drawbar.driver.node import settings as node_settings
from drawbar.mocks.cluster import deployment

DOCS = Path(__file__).parents[4] / "docs"
DOCTOR, TROUBLES, CHECKS = (
    (DOCS / name).read_text() for name in ("doctor.md", "troubleshooting.md", "reference/checks.md")
)
SPEC = {
    "fabric": "rack-1",
    "deviceID": "gpu-1",
    "driver": "drawbar.dev",
    "pool": "rack-1/enc",
    "device": "gpu-1",
    "nodeName": "worker-1",
    "hostID": "host-1",
    "identity": {"deviceClass": "gpu"},
}


def lines(where):
    """Return the commands of all blocks with this mark, in their order."""
    blocks = re.findall(rf"```sh {where}\n(.*?)```", DOCTOR + TROUBLES, re.DOTALL)
    return [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]


@pytest.fixture
def cluster(drawbar_apiserver, monkeypatch):
    """Create the objects of the pages: a Fabric rack-1 whose device gpu-1 is on the node worker-1."""

    async def make():
        async with client.connecting(config.from_kubeconfig(drawbar_apiserver.kubeconfig)) as api:
            await deployment.apply(api)
            for kind, name, spec in (
                (kinds.NODE, "worker-1", {}),
                (kinds.FABRIC, "rack-1", {"adapter": "grpc", "endpoint": "unix:/x"}),
                (kinds.ATTACHMENT, "rack-1.gpu-1", SPEC),
            ):
                body = {
                    "apiVersion": kind.api_version,
                    "kind": kind.kind,
                    "metadata": {"name": name},
                    "spec": spec,
                }
                await api.create(kind, body, into=dict)

    asyncio.run(make())
    monkeypatch.setenv("KUBECONFIG", str(drawbar_apiserver.kubeconfig))


def runs(command, capsys):
    """Run a command of the doctor, and check that it looked at something."""
    program, *words = shlex.split(command)
    assert program == "drawbar"
    try:
        status = main.main(words)
    except SystemExit as ended:
        status = ended.code
    shown = capsys.readouterr()
    assert status in (0, 1), shown.err
    assert shown.err == ""
    assert shown.out
    if "json" in words:
        assert json.loads(shown.out)["findings"]


def test_the_commands_for_a_cluster_run(cluster, capsys):
    commands = [line for line in lines("cluster") if line.startswith("drawbar ")]
    assert len(commands) >= 5
    for command in commands:
        runs(command, capsys)


@pytest.mark.tool("kubectl")
def test_the_commands_of_kubectl_run(cluster):
    commands = [line for line in lines("cluster") if not line.startswith("drawbar ")]
    assert len(commands) >= 10
    for command in commands:
        assert command.startswith("kubectl ")
        done = subprocess.run(
            shlex.split(command),
            env=dict(os.environ),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"


def test_the_commands_for_a_node_run(tmp_path, monkeypatch, capsys):
    for name in ("KUBERNETES_SERVICE_HOST", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(DOCS.parent)
    commands = lines("node")
    assert len(commands) == 3
    for command in commands:
        runs(command, capsys)


def test_every_check_is_documented_and_no_other():
    named = [row.name for table in checks.TABLES for row in table.rows]
    assert sorted(named) == sorted(check.value for check in findings.Check)


def test_the_checks_that_troubleshooting_names_exist():
    topics = "|".join(sorted({check.topic for check in findings.Check}))
    named = set(re.findall(rf"`((?:{topics})\.[\w-]+)`", TROUBLES)) - {"controller.md", "node.md"}
    assert named <= {check.value for check in findings.Check}
    assert len(named) >= 20


def test_the_severities_and_numbers_on_the_page_are_those_of_the_program():
    assert re.findall(r"^\| `(\w+)` \| [\w ]", DOCTOR.partition("## Checks")[0], re.MULTILINE) == [
        severity.value for severity in findings.Severity
    ]
    assert (
        f"a warning above {clocks.SKEW_SECONDS:g} s, an error above {clocks.SKEW_ERROR_SECONDS:g} s" in CHECKS
    )
    assert f"at most {attachments.VISIBLE_SECONDS:g} s from attached to visible" in CHECKS
    assert node_settings.Settings().visible_timeout_seconds == attachments.VISIBLE_SECONDS
    assert f"at most {attachments.DETACH_SECONDS:g} s from deletion" in CHECKS
    assert f"Kubernetes 1.{server.OLDEST} or later" in CHECKS
    assert f"| 1.{server.NEWEST} |" in DOCTOR
