"""Attach and detach with a file alone: by the adapter itself, asked first, and never against a cluster's mark."""

import asyncio
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from tests.scenes import documents

from drawbar.driver import errors
from drawbar.driver.cli import consent
from drawbar.driver.cli.fabric import direct
from drawbar.fabric import contract
from drawbar.fabric.grpc.adapter import GrpcAdapter
from drawbar.mocks.fabric import SimulatedFabric, configuration


@pytest.fixture
def attach_marked(drawbar_fabric):
    """Return a function that attaches a device as a cluster does."""

    def attach(device_id, mark):
        async def work():
            config = contract.AdapterConfig(name="cluster", endpoint=drawbar_fabric.endpoint)
            async with await GrpcAdapter.connect(config) as adapter:
                request = contract.AttachRequest(
                    request_id="of-a-cluster", device_id=device_id, host_id="host-1", mark=mark
                )
                operation = await adapter.attach(request)
                while not operation.done:
                    operation = await adapter.operation(operation_id=operation.id)

        asyncio.run(work())

    return attach


def hosts(drawbar_command, file):
    return {
        device["id"]: device["host"]
        for device in documents.content(drawbar_command("devices", "--config", file, "-o", "json")[1])
    }


@pytest.mark.parametrize(("file", "host"), [("grpc_file", "host-1"), ("redfish_file", "h1")])
def test_a_device_is_attached_and_detached(drawbar_command, request, file, host):
    file = request.getfixturevalue(file)
    device = next(iter(hosts(drawbar_command, file)))
    status, out, _ = drawbar_command("attach", device, host, "--config", file, "--yes")
    assert (status, out) == (0, f"Device {device} is attached to host {host}.\n")
    assert hosts(drawbar_command, file)[device] == host
    assert drawbar_command("attach", device, host, "--config", file, "--yes")[1].endswith("already.\n")
    status, out, _ = drawbar_command("detach", device, "--config", file, "--yes", "-o", "json")
    assert documents.content(out) == {
        "device": device,
        "host": None,
        "changed": True,
        "dryRun": "none",
    }
    assert hosts(drawbar_command, file)[device] is None
    assert drawbar_command("detach", device, "--config", file)[:2] == (
        0,
        f"Device {device} is detached already.\n",
    )


def test_a_dry_run_tells_the_change_and_makes_none(drawbar_command, grpc_file):
    at = ("--config", grpc_file, "--dry-run")
    status, out, err = drawbar_command("attach", "gpu-1", "host-1", *at)
    assert (status, out) == (0, "Device gpu-1 would be attached to host host-1.\n")
    assert err.startswith("dry run: Attach device gpu-1 to host host-1?")
    assert hosts(drawbar_command, grpc_file)["gpu-1"] is None
    drawbar_command("attach", "gpu-1", "host-1", "--config", grpc_file, "--yes")
    assert drawbar_command("attach", "gpu-1", "host-1", *at)[1].endswith(
        "is attached to host host-1 already.\n"
    )
    status, out, err = drawbar_command("detach", "gpu-1", *at, "-o", "json")
    assert (status, documents.content(out)) == (
        0,
        {"device": "gpu-1", "host": None, "changed": True, "dryRun": "client"},
    )
    assert "programs that use the device there fail" in err
    assert hosts(drawbar_command, grpc_file)["gpu-1"] == "host-1"
    status, _, err = drawbar_command("detach", "gpu-1", "--config", grpc_file, "--dry-run=server")
    assert status == 2
    assert "use --dry-run=client" in err


def test_without_a_terminal_and_without_yes_nothing_is_changed(drawbar_command, grpc_file, monkeypatch):
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        status, _, err = drawbar_command("attach", "gpu-1", "host-1", "--config", grpc_file)
    assert status == 1
    assert "add --yes" in err
    assert err.count("\n") == 1
    assert hosts(drawbar_command, grpc_file)["gpu-1"] is None


@pytest.mark.parametrize(
    ("answer", "status", "host"), [(b"y\n", 0, "host-1"), (b"\n", 1, None), (b"nay\n", 1, None)]
)
def test_the_answer_on_the_terminal_decides(drawbar_command, grpc_file, answer, status, host):
    ours, theirs = pty.openpty()
    words = ["fabric", "attach", "gpu-1", "host-1", "--config", str(grpc_file)]
    os.write(ours, answer)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "drawbar.driver.main", *words],
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == status, done.stderr
    assert "Attach device gpu-1 to host host-1? [y/N]" in done.stderr
    assert hosts(drawbar_command, grpc_file)["gpu-1"] == host


def test_a_device_with_the_mark_of_a_cluster_is_left_alone(drawbar_command, grpc_file, attach_marked):
    attach_marked("gpu-1", "drawbar/0f1e/rack-1")
    for words in (("detach", "gpu-1"), ("attach", "gpu-1", "host-1")):
        status, _, err = drawbar_command(*words, "--config", grpc_file, "--yes")
        assert status == 1
        assert "attached by a cluster (mark drawbar/0f1e/rack-1); in that cluster delete" in err
    assert hosts(drawbar_command, grpc_file)["gpu-1"] == "host-1"


def test_an_unknown_device_or_host_is_one_sentence(drawbar_command, grpc_file):
    for words, sentence in (
        (("attach", "gpu-9", "host-1"), "there is no device gpu-9"),
        (("attach", "gpu-1", "host-9"), "there is no host host-9"),
        (("detach", "gpu-9"), "there is no device gpu-9"),
    ):
        status, _, err = drawbar_command(*words, "--config", grpc_file, "--yes")
        assert status == 1
        assert sentence in err


@pytest.mark.drawbar(
    fabric={
        "hosts": [{"id": "host-1"}],
        "chooses": "first",
        "enclosures": [
            {"id": "e", "devices": [{"id": name, "class": "gpu", "model": "A"} for name in ("a", "b")]}
        ],
    }
)
def test_a_fabric_that_chooses_the_device_is_asked_for_a_model(drawbar_command, grpc_file):
    at = ("--config", grpc_file, "--yes")
    status, _, err = drawbar_command("attach", "a", "host-1", *at)
    assert status == 1
    assert "the fabric chooses the device itself" in err
    by_model = ("attach", "--model", "A", "--host", "host-1", *at)
    status, out, _ = drawbar_command(*by_model, "-o", "json")
    assert status == 0
    assert documents.content(out) == {"device": "a", "host": "host-1", "changed": True, "dryRun": "none"}
    assert hosts(drawbar_command, grpc_file) == {"a": "host-1", "b": None}
    assert drawbar_command(*by_model)[:2] == (0, "Device b is attached to host host-1.\n")
    status, _, err = drawbar_command(*by_model)
    assert status == 1
    assert "no device of the model A is free" in err
    assert drawbar_command("detach", "a", *at)[:2] == (0, "Device a is detached.\n")
    assert hosts(drawbar_command, grpc_file) == {"a": None, "b": "host-1"}


def test_an_attach_by_model_is_asked_first_and_needs_a_model_and_a_host_that_there_are(
    drawbar_command, grpc_file, monkeypatch
):
    for words, sentence in (
        (("--model", "NO", "--host", "host-1"), "there is no device of the model NO"),
        (("--model", "H100", "--host", "host-9"), "there is no host host-9"),
        (("--model", "H100"), "name either DEVICE and HOST, or --model MODEL and --host HOST"),
        (("gpu-1", "--host", "host-1"), "name either DEVICE and HOST, or --model MODEL and --host HOST"),
        (("gpu-1", "host-1", "--model", "H100"), "name either DEVICE and HOST"),
        ((), "name either DEVICE and HOST"),
    ):
        status, _, err = drawbar_command("attach", *words, "--config", grpc_file, "--yes")
        expected = 1 if sentence.startswith("there is no") else 2
        assert (status, sentence in err) == (expected, True), (words, err)
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        status, _, err = drawbar_command(
            "attach", "--model", "H100", "--host", "host-1", "--config", grpc_file
        )
    assert status == 1
    assert "add --yes" in err
    assert err.count("\n") == 1
    assert set(hosts(drawbar_command, grpc_file).values()) == {None}


@pytest.mark.drawbar(
    fabric={
        "hosts": [{"id": "host-1"}],
        "attachSeconds": 3600,
        "enclosures": [{"id": "e", "devices": [{"id": "a", "class": "gpu", "model": "A"}]}],
    }
)
def test_an_attach_that_does_not_end_ends_the_command_and_a_second_one_is_refused(drawbar_command, grpc_file):
    words = ("attach", "a", "host-1", "--config", grpc_file, "--yes")
    status, _, err = drawbar_command(*words, "--timeout", 2)
    assert status == 1
    assert "An operation in progress may go on" in err
    assert "in flight" in drawbar_command(*words)[2]


@pytest.mark.parametrize(
    ("host_id", "mark", "words"), [("h1", "a-cluster", "by a cluster"), ("h2", None, "changed while")]
)
async def test_a_connection_changed_during_the_question_is_left_alone(monkeypatch, host_id, mark, words):
    described = configuration.parse(
        b"""{"hosts": [{"id": "h1"}, {"id": "h2"}],
            "enclosures": [{"id": "e", "devices": [{"id": "d1", "class": "gpu"}]}]}"""
    )
    async with SimulatedFabric.running(described) as fabric:
        await fabric.attach(contract.AttachRequest(request_id="r1", device_id="d1", host_id="h1"))

        async def late(question, *, assumed):
            await fabric.console.surprise_detach("d1")
            await fabric.attach(
                contract.AttachRequest(request_id="r2", device_id="d1", host_id=host_id, mark=mark)
            )

        monkeypatch.setattr(consent, "ask", late)
        with pytest.raises(errors.DrawbarError, match=words):
            await direct.detach(fabric, "d1", assumed=False)
        assert (await fabric.devices()).device("d1").connection.host_id == host_id
