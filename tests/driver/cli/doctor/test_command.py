"""`drawbar doctor` as it is typed: on a cluster, and on a node."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from drawbar.driver import main
from drawbar.driver.kube import client, config
from drawbar.mocks.cluster import deployment

# What is set where the tests run must not decide what they see.
OURS = ("KUBECONFIG", "NODE_NAME", "POD_UID", "KUBERNETES_SERVICE_HOST")


@pytest.fixture(autouse=True)
def plain(monkeypatch, tmp_path):
    for name in (*OURS, *(name for name in os.environ if name.startswith("DRAWBAR_"))):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def deploy(kubeconfig):
    async def work():
        async with client.connecting(config.from_kubeconfig(kubeconfig)) as api:
            await deployment.apply(api, policies=True)

    asyncio.run(work())


def test_a_cluster_is_checked_through_a_kubeconfig_by_the_program_itself(drawbar_apiserver):
    deploy(drawbar_apiserver.kubeconfig)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "drawbar.driver.main",
            "doctor",
            "--kubeconfig",
            str(drawbar_apiserver.kubeconfig),
        ],
        env=os.environ | {"COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    assert "Lease drawbar/drawbar-controller: does not exist" in " ".join(done.stdout.split())
    assert max(len(line) for line in done.stdout.splitlines()) <= 100


def test_the_json_has_the_same_findings_and_their_subjects(drawbar_apiserver, capsys, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(drawbar_apiserver.kubeconfig))
    assert (
        main.main(["doctor", "-o", "json", "--daemons", "elsewhere", "--driver-name", "gpu.example.com"]) == 1
    )
    reported = json.loads(capsys.readouterr().out)
    assert (reported["server"], reported["driver"]) == (drawbar_apiserver.url, "gpu.example.com")
    accounts = {
        finding["subject"] for finding in reported["findings"] if finding["check"] == "access.account"
    }
    assert accounts == {
        "ServiceAccount elsewhere/drawbar-controller-gpu.example.com",
        "ServiceAccount elsewhere/drawbar-node-gpu.example.com",
    }
    assert reported["exitStatus"] == 1


def test_colour_is_for_terminals_only(drawbar_apiserver, capsys):
    main.main(["doctor", "--kubeconfig", str(drawbar_apiserver.kubeconfig), "--brief"])
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "error" in shown
    assert "\nok " not in shown


def test_an_unknown_token_ends_with_one_sentence_and_status_3(drawbar_apiserver, capsys, tmp_path):
    content = yaml.safe_load(drawbar_apiserver.kubeconfig.read_text())
    content["users"][0]["user"]["token"] = "nobodys"
    (tmp_path / "wrong").write_text(yaml.safe_dump(content))
    assert main.main(["doctor", "--kubeconfig", str(tmp_path / "wrong")]) == 3
    shown = capsys.readouterr().err
    assert "refuses the credentials" in shown
    assert "nobodys" not in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "no API server is configured"),
        (["--kubeconfig", "{closed}"], "does not answer"),
        (["--kubeconfig", "{tmp}/none"], "cannot read"),
        (["--driver-name", "Not A Name"], "--driver-name"),
        (["--node", "--daemons", "x"], "--daemons and --node do not go together"),
        (["--node", "--config", "{tmp}/none"], "none"),
    ],
    ids=[
        "no kubeconfig",
        "no server there",
        "no such file",
        "no name",
        "options that do not go together",
        "no such settings",
    ],
)
def test_a_failure_to_connect_is_one_sentence(words, expected, tmp_path, capsys, own_address):
    closed, (host, port) = tmp_path / "closed", own_address
    server = {"clusters": [{"name": "c", "cluster": {"server": f"http://{host}:{port}"}}]}
    context = {"contexts": [{"name": "x", "context": {"cluster": "c"}}], "current-context": "x"}
    closed.write_text(json.dumps(server | context))
    status = main.main(["doctor", *(word.format(closed=closed, tmp=tmp_path) for word in words)])
    assert status == (3 if "{closed}" in words else 2)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert expected in shown.err
    assert "Traceback" not in shown.err


def test_the_help_has_examples(capsys):
    with pytest.raises(SystemExit) as ended:
        main.main(["doctor", "--help"])
    assert ended.value.code == 0
    assert "drawbar doctor --node" in capsys.readouterr().out.partition("examples:")[2]


@pytest.fixture
def node(tmp_path, monkeypatch, drawbar_sysfs):
    """Set a node daemon's variables as in its pod, make its directories, and yield the kubelet's."""
    # pytest's folders are too deep for sockets.
    with tempfile.TemporaryDirectory(prefix="drawbar-") as short:
        folder = Path(short, "k")
        (folder / "plugins_registry").mkdir(parents=True)
        _set(monkeypatch, folder, tmp_path, drawbar_sysfs)
        yield folder


def _set(monkeypatch, folder, tmp_path, drawbar_sysfs):
    settings = {
        "NODE_NAME": "n1",
        "POD_UID": "u-1",
        "DRAWBAR_KUBELET_DIR": folder,
        "DRAWBAR_CDI_DIR": tmp_path / "cdi",
        "DRAWBAR_SYSFS": drawbar_sysfs.tree.root,
        "DRAWBAR_UEVENTS": f"unix:{drawbar_sysfs.uevents}",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, str(value))


def checks(capsys, *words):
    """Return all findings on the node, and by check their severities."""
    status = main.main(["doctor", "--node", "-o", "json", *words])
    reported = json.loads(capsys.readouterr().out)
    assert reported["exitStatus"] == status
    severities = {}
    for finding in reported["findings"]:
        severities.setdefault(finding["check"], []).append(finding["severity"])
    return reported["findings"], severities


def test_a_node_without_a_daemon_is_reported_with_its_leftovers(node, capsys, tmp_path):
    left = node / "plugins_registry" / "drawbar.dev-u-0-reg.sock"
    with closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(left))
    containerd = tmp_path / "host" / "etc" / "containerd"
    containerd.mkdir(parents=True)
    (containerd / "config.toml").write_text("version = 2\n")
    (containerd / "conf.d").mkdir()
    (containerd / "conf.d" / "9.toml").write_text(
        '[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = false\n'
    )
    reported, severities = checks(capsys, "--host-root", str(tmp_path / "host"))
    assert severities["host.sockets"] == ["error", "warning"]
    assert severities["host.daemon"] == ["error"]
    assert severities["host.cdi"] == ["error"]
    assert severities["clocks.here"] == ["unchecked"]
    assert severities["host.left-out"] == ["unchecked"], "nobody has looked at the devices"
    (cdi,) = [finding for finding in reported if finding["check"] == "host.cdi"]
    assert "/etc/containerd/config.toml, /etc/containerd/conf.d/9.toml" in cdi["message"]
    assert str(left) in {finding["subject"] for finding in reported}


def test_settings_with_which_the_daemon_would_not_start_are_findings(node, capsys, monkeypatch):
    monkeypatch.setenv("DRAWBAR_VISIBLE_TIMEOUT", "-1")
    monkeypatch.setenv("DRAWBAR_KUBELET_DIR", str(node / ("x" * 100)))
    _, severities = checks(capsys)
    assert severities["host.settings"] == ["error"]
    assert severities["host.sockets"] == ["error"]


def test_a_running_daemon_is_asked_itself(node, capsys, tmp_path, drawbar_apiserver):
    deploy(drawbar_apiserver.kubeconfig)
    kubeconfig = str(drawbar_apiserver.account("drawbar:drawbar-node", node="n1"))
    with (tmp_path / "log").open("wb") as log:
        words = [sys.executable, "-m", "drawbar.driver.main", "node", "--kubeconfig", kubeconfig]
        daemon = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 120
        while not (node / "plugins_registry" / "drawbar.dev-u-1-reg.sock").exists():
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            assert daemon.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.02)
        reported, severities = checks(capsys, "--kubeconfig", kubeconfig)
    finally:
        daemon.terminate()
        daemon.wait(120)
    assert severities["host.sockets"] == ["ok"]
    # Alive, and not ready, since no kubelet has registered it; and there is no such node.
    assert severities["host.daemon"] == ["error", "ok"]
    assert severities["host.settings"] == ["error", "ok"]
    assert severities["clocks.here"] == ["ok"]
    assert severities["host.left-out"] == ["ok"]
    assert any("kubelet" in finding["message"] for finding in reported if finding["check"] == "host.daemon")
