"""docs/first-pod.md is followed from its first command to its last on the emulated cluster of its own first step."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "first-pod.md").read_text()
COMMANDS = [
    line for block in re.findall(r"```sh first-pod\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
]
SECONDS = 120


@pytest.fixture
def environment(tmp_path):
    """Run the cluster of the page, and yield the environment of a shell in its second terminal."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "COLUMNS": "200"}
    (line,) = re.findall(r"^\$ (drawbar mock cluster .*)$", PAGE, re.MULTILINE)
    words = line.replace("/tmp/drawbar", str(tmp_path)).split()
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as cluster:
        try:
            assert json.loads(cluster.stdout.readline())["ready"]
            yield environment | {"KUBECONFIG": str(tmp_path / "admin.kubeconfig")}
        finally:
            cluster.terminate()
        assert cluster.wait(SECONDS) == 0


@pytest.mark.tool("kubectl")
def test_a_pod_gets_a_gpu_and_gives_it_back(environment):
    outputs = {}
    for command in COMMANDS:
        done = subprocess.run(
            command,
            shell=True,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        outputs.setdefault(command, []).append(done.stdout)
    assert "rack-1.gpu-" in outputs["kubectl get deviceattachments"][0]
    (waits,) = re.findall(r"```text\n(Cause\n.*?)\n```", PAGE, re.DOTALL)
    assert " ".join(waits.split()) in " ".join(outputs["drawbar explain pod/greedy || true"][0].split())
    assert ["Devices 12 devices: 12 free" in text for text in outputs["drawbar status"]] == [True, True]
