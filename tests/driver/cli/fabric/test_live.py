"""Operations, the watch and the conformance suite, on a simulated and an emulated fabric."""

import json
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from tests.scenes import documents


def test_operations_are_listed_with_their_outcome(drawbar_command, grpc_file):
    assert (
        drawbar_command("operations", "--config", grpc_file)[1] == "The fabric manager lists no operation.\n"
    )
    drawbar_command("attach", "gpu-1", "host-1", "--config", grpc_file, "--yes")
    (operation,) = documents.content(drawbar_command("operations", "--config", grpc_file, "-o", "json")[1])
    assert (operation["kind"], operation["device"], operation["done"]) == ("attach", "gpu-1", True)
    assert "done" in drawbar_command("operations", "--config", grpc_file)[1]


@pytest.mark.parametrize("form", [[], ["-o", "json"]])
def test_a_watch_prints_changes_and_ends_with_its_reader(drawbar_command, grpc_file, form):
    words = [
        sys.executable,
        "-m",
        "drawbar.driver.main",
        "fabric",
        "watch",
        "--config",
        str(grpc_file),
        *form,
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
        try:
            assert watch.stderr.readline() == "watching\n"
            drawbar_command("attach", "gpu-1", "host-1", "--config", grpc_file, "--yes")
            wanted = '"host":"host-1"' if form else "device gpu-1: on host host-1"
            while wanted not in (line := watch.stdout.readline()):
                assert line, "the watch ended"
            watch.stdout.close()
            drawbar_command("detach", "gpu-1", "--config", grpc_file, "--yes")
            assert watch.wait(120) == 0
            assert watch.stderr.read() == ""
        finally:
            watch.kill()


def test_a_watch_ends_at_its_deadline_without_an_error(drawbar_command, grpc_file):
    assert drawbar_command("watch", "--config", grpc_file, "--timeout", 1) == (0, "", "watching\n")


TWO_HOSTS = {
    "hosts": [{"id": "h1"}, {"id": "h2"}, {"id": "h3"}],
    "enclosures": [
        {
            "id": "e",
            "devices": [{"id": f"d{n}", "class": "gpu", "model": "A", "serial": f"S{n}"} for n in (1, 2, 3)],
        }
    ],
}


@pytest.mark.drawbar(fabric=TWO_HOSTS)
def test_the_suite_checks_a_live_fabric_and_touches_only_named_devices(
    drawbar_command, drawbar_fabric, grpc_file, tmp_path
):
    drawbar_command("attach", "d3", "h3", "--config", grpc_file, "--yes")
    before = len(drawbar_fabric.journal())
    words = ("conformance", "--config", grpc_file, "--devices", "d1", "--hosts", "h1,h2", "--yes")
    status, out, err = drawbar_command(*words, "--junit", tmp_path / "report.xml")
    assert status == 0, out
    assert "0 failed" in out
    assert "passed: an attached device is listed as attached" in err
    text = json.dumps(drawbar_fabric.journal()[before:])
    assert '"d1"' in text
    assert not any(f'"{name}"' in text for name in ("d2", "d3", "h3"))
    suite = ElementTree.fromstring((tmp_path / "report.xml").read_bytes())
    assert suite.get("failures") == "0"
    assert len(suite) == int(suite.get("tests"))
    devices = documents.content(drawbar_command("devices", "--config", grpc_file, "-o", "json")[1])
    assert [device["host"] for device in devices] == [None, None, "h3"]


@pytest.mark.drawbar(fabric=TWO_HOSTS)
def test_the_suite_refuses_a_device_in_use_and_asks_before_the_first_change(drawbar_command, grpc_file):
    drawbar_command("attach", "d3", "h3", "--config", grpc_file, "--yes")
    words = ("conformance", "--config", grpc_file, "--hosts", "h1")
    status, _, err = drawbar_command(*words, "--devices", "d1,d3", "--yes")
    assert status == 1
    assert "device d3 is attached to host h3" in err
    assert drawbar_command(*words, "--devices", "d1,")[0] == 2


def test_the_suite_judges_redfish(drawbar_command, redfish_file):
    words = (
        "conformance",
        "--config",
        redfish_file,
        "--devices",
        "gpu-1",
        "--hosts",
        "h1,h2",
        "--yes",
        "-o",
        "json",
    )
    listed = documents.content(drawbar_command("devices", "--config", redfish_file, "-o", "json")[1])
    words = tuple(listed[0]["id"] if word == "gpu-1" else word for word in words)
    status, out, _ = drawbar_command(*words)
    report = documents.content(out)
    assert status == 0, [check for check in report["checks"] if check["verdict"] == "failed"]
    assert report["passed"]
