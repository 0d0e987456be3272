"""deploy/image/load, beside stand-ins for docker, podman, kind, minikube, k3d and kubectl that record their calls."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

LOAD = Path(__file__).parents[2] / "deploy" / "image" / "load"
IMAGE = "localhost/drawbar-simulation:try-it"
SYSTEM = ("bash", "cat", "dirname", "mktemp", "rm")
NEW = "v1.36.1 containerd://2.1.4"
STAND_IN = """#!/bin/bash
printf '%s\\n' "$PWD $(basename "$0") $*" >>"{log}"
{body}
"""
SAVE = 'if [ "$1" = save ]; then echo layers >"$3"; fi'
LOADS = 'for word; do case $word in *.tar) [ -s "$word" ] || exit 9; printf %s "$word" >"{folder}/archive";; esac; done'


class Desk:
    """A machine with a few programs.

    Args:
        folder: of the programs and what they record.
    """

    def __init__(self, folder):
        self.folder = folder
        self._log = folder / "log"
        self._programs = folder / "bin"
        self._programs.mkdir()
        for name in (*SYSTEM, "basename"):
            (self._programs / name).symlink_to(shutil.which(name))

    def install(self, name, body="true"):
        """Install a stand-in that records its calls and does what `body` says."""
        path = self._programs / name
        path.write_text(STAND_IN.format(log=self._log, body=body))
        path.chmod(0o755)

    def give(self, *tools, engine="docker", nodes=(NEW,)):
        """Install an engine, tools, and kubectl with a cluster that has these nodes."""
        self.install(engine, SAVE)
        for tool in tools:
            self.install(tool, LOADS.format(folder=self.folder))
        self.install("kubectl", "".join(f'echo "{node}"\n' for node in nodes))

    def load(self, *words):
        """Run the script from another folder than the checkout; return the finished process."""
        return subprocess.run(
            [str(LOAD), *words],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={"PATH": str(self._programs), "TMPDIR": str(self.folder)},
            timeout=60,
            check=False,
        )

    def calls(self, program):
        """Return the calls of a program without the names of temporary folders, each as (folder, words)."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        split = [line.split(" ", 2) for line in lines]
        archives = [path.read_text() for path in self.folder.glob("archive")]
        for archive in archives:
            split = [[each.replace(archive, "ARCHIVE") for each in parts] for parts in split]
        return [(parts[0], parts[2] if len(parts) > 2 else "") for parts in split if parts[1] == program]


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


CHECKOUT = str(LOAD.parents[2])
BUILD = (CHECKOUT, f"build --file deploy/image/Containerfile --target simulation --tag {IMAGE} .")
SAVED = (CHECKOUT, f"save --output ARCHIVE {IMAGE}")


@pytest.mark.parametrize(
    ("words", "tool", "context", "loaded"),
    [
        pytest.param([], "kind", "kind-kind", "load image-archive ARCHIVE --name kind", id="kind"),
        pytest.param(
            ["--cluster", "lab"], "kind", "kind-lab", "load image-archive ARCHIVE --name lab", id="named"
        ),
        pytest.param(
            ["--into", "minikube"],
            "minikube",
            "minikube",
            "image load ARCHIVE --profile minikube",
            id="minikube",
        ),
        pytest.param(
            ["--into", "k3d"],
            "k3d",
            "k3d-k3s-default",
            "image import ARCHIVE --cluster k3s-default",
            id="k3d",
        ),
    ],
)
def test_the_image_is_built_and_loaded_by_an_archive(desk, words, tool, context, loaded):
    desk.give(tool)
    done = desk.load(*words)
    assert done.returncode == 0, done.stderr
    assert desk.calls("docker") == [(CHECKOUT, "info"), BUILD, SAVED]
    assert desk.calls(tool) == [(CHECKOUT, loaded)]
    ((_, asked),) = desk.calls("kubectl")
    assert asked.startswith(f"--context {context} ")
    assert not Path((desk.folder / "archive").read_text()).parent.exists()


def test_podman_builds_where_docker_does_not_run(desk):
    desk.give("kind", engine="podman")
    desk.install("docker", "exit 1")
    assert desk.load().returncode == 0
    assert desk.calls("docker") == [(CHECKOUT, "info")]
    assert desk.calls("podman") == [(CHECKOUT, "info"), BUILD, SAVED]


def test_a_named_engine_is_not_asked_whether_it_runs(desk):
    desk.give("kind", engine="podman")
    assert desk.load("--engine", "podman").returncode == 0
    assert desk.calls("podman") == [BUILD, SAVED]


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        pytest.param(("v1.35.9 containerd://2.1.4",), "runs Kubernetes v1.35.9", id="Kubernetes"),
        pytest.param((NEW, "v1.36.1 containerd://1.7.27"), "runs containerd://1.7.27", id="containerd"),
        pytest.param(("v1.36.1 docker://28.1.1",), "runs docker://28.1.1", id="docker"),
        pytest.param((), "has no nodes", id="empty"),
    ],
)
def test_a_cluster_that_cannot_serve_is_refused_before_the_build(desk, nodes, says):
    desk.give("kind", nodes=nodes)
    done = desk.load()
    assert done.returncode == 1
    assert says in done.stderr
    assert done.stderr.startswith("error: ")
    assert BUILD not in desk.calls("docker")


def test_a_later_kubernetes_and_k3s_are_taken(desk):
    desk.give("k3d", nodes=("v1.37.0+k3s1 containerd://2.1.4-k3s1",))
    assert desk.load("--into", "k3d").returncode == 0


def test_a_cluster_that_does_not_answer_is_refused_with_the_command_that_makes_one(desk):
    desk.give("kind")
    desk.install("kubectl", "exit 1")
    done = desk.load()
    assert done.returncode == 1
    assert "kind create cluster --config docs/examples/kind.yaml" in done.stderr
    assert BUILD not in desk.calls("docker")


@pytest.mark.parametrize("missing", ["kind", "kubectl", "docker"])
def test_a_program_that_is_missing_is_named(desk, missing):
    desk.give("kind")
    (desk.folder / "bin" / missing).unlink()
    done = desk.load()
    assert done.returncode == 1
    assert missing in done.stderr


@pytest.mark.parametrize("words", [["--into", "rancher"], ["--into"], ["kind"]], ids=" ".join)
def test_a_wrong_argument_is_usage(desk, words):
    desk.give("kind")
    done = desk.load(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert not desk.calls("kubectl")


@pytest.mark.parametrize("broken", ["build", "save"])
def test_a_build_that_fails_loads_nothing(desk, broken):
    desk.give("kind")
    desk.install("docker", f'[ "$1" != {broken} ]')
    assert desk.load().returncode != 0
    assert not desk.calls("kind")
    assert [path for path in desk.folder.iterdir() if path.name.startswith("tmp.")] == []


def test_the_script_is_executable_and_help_does_nothing(desk):
    assert os.access(LOAD, os.X_OK)
    done = desk.load("--help")
    assert done.returncode == 0
    assert IMAGE in done.stdout
