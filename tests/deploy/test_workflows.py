"""The workflows of the forge: what they run is there, what they use is pinned, and they may do no more than they need.

The scripts of the release that need no forge run here, with doubles of the programs that reach a registry or the forge.
"""

import hashlib
import io
import os
import re
import shlex
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
RELEASE = ROOT / ".github" / "workflows" / "release.yaml"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
READ = {"contents": "read"}
PUBLISH = {"packages": "write", "id-token": "write", "attestations": "write"}
# All but these may read the code and nothing else.
RIGHTS = {
    ("docs", "publish"): {"pages": "write", "id-token": "write"},
    ("release", "image"): READ | PUBLISH,
    ("release", "index"): PUBLISH,
    ("release", "chart"): READ | PUBLISH,
    ("release", "release"): {"contents": "write", "id-token": "write", "attestations": "write"},
}
DIGEST = "sha256:" + "0123456789abcdef" * 4


def jobs(path):
    """Return the jobs of the workflow by name."""
    return yaml.safe_load(path.read_text())["jobs"]


def steps(path):
    """Return the steps of all jobs of the workflow; a job that calls another workflow has none."""
    return [step for job in jobs(path).values() for step in job.get("steps", ())]


def triggers(path):
    """Return what starts the workflow; YAML 1.1 reads the key `on` as a truth."""
    return yaml.safe_load(path.read_text())[True]


def make_targets():
    """Return the targets that the Makefile declares as phony."""
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    return set(phony[1].split())


def list_run_targets(path):
    """Return the targets of make that the workflow runs."""
    return {
        target
        for step in steps(path)
        for target in re.findall(r"^\s*(?:sudo )?make ([\w-]+)", step.get("run", ""), re.MULTILINE)
    }


def test_every_change_passes_tests_chart_and_docs_and_every_night_kubernetes_and_the_lab():
    by_name = {path.stem: list_run_targets(path) for path in WORKFLOWS}
    assert by_name["ci"] == {"test", "chart", "docs"}
    assert by_name["docs"] == {"docs"}
    assert by_name["nightly"] == {"kubernetes", "hil"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_only_targets_that_the_makefile_has(path):
    assert list_run_targets(path) <= make_targets()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_by_a_full_commit_hash_beside_its_version(path):
    lines = re.findall(r"^\s*(?:- )?uses: (.*)$", path.read_text(), re.MULTILINE)
    called = [job["uses"] for job in jobs(path).values() if "uses" in job]
    assert len(lines) == sum("uses" in step for step in steps(path)) + len(called)
    for line in lines:
        if line.split(" # ")[0] in called:
            assert "workflow_call" in triggers(ROOT / line.split(" # ")[0])
            continue
        assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*", line), line


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_job_has_a_deadline_and_names_its_permissions(path):
    assert yaml.safe_load(path.read_text())["permissions"] == {}
    for name, job in jobs(path).items():
        # A called workflow has deadlines of its own.
        assert ("uses" in job) != (0 < job.get("timeout-minutes", 0) <= 240), name
        assert job["permissions"] == RIGHTS.get((path.stem, name), READ), name
    for line in re.findall(r"^ +[\w-]+: (?:write|read)\b.*$", path.read_text(), re.MULTILINE):
        assert re.search(r" # to \w+", line), f"why? {line}"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_script_is_one_that_bash_can_parse(path):
    for step in steps(path):
        subprocess.run(["bash", "-n"], input=step.get("run", ""), text=True, check=True, timeout=120)


def list_required_jobs(name):
    """Return the jobs of the release that have passed before the named job begins."""
    job = jobs(RELEASE)[name]
    first = job.get("needs", [])
    first = [first] if isinstance(first, str) else first
    return set(first) | {before for need in first for before in list_required_jobs(need)}


def test_a_release_begins_with_a_tag_alone():
    assert triggers(RELEASE) == {"push": {"tags": ["v*"]}}


@pytest.mark.parametrize("name", [name for workflow, name in RIGHTS if workflow == "release"])
def test_nothing_is_published_before_the_tag_the_tests_and_the_programs_have_passed(name):
    assert list_required_jobs(name) >= {"check", "tests", "program"}
    assert jobs(RELEASE)["tests"]["uses"] == "./.github/workflows/ci.yaml"


def test_jobs_with_write_access_or_secrets_use_the_release_environment():
    for name, job in jobs(RELEASE).items():
        writes = "write" in job["permissions"].values()
        assert (job.get("environment") == "release") == writes, name
        assert writes or "secrets." not in str(job), name


def test_the_registry_is_a_variable_of_the_forge():
    text = RELEASE.read_text()
    assert re.findall(r"^.*ghcr\.io.*$", text, re.MULTILINE) == [
        "  REGISTRY: ${{ vars.REGISTRY || format('ghcr.io/{0}', github.repository_owner) }}"
    ]
    assert not re.search(r"docker\.io|quay\.io", text)


def test_the_page_about_releases_has_each_setting():
    page = (ROOT / "docs" / "release.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    settings = re.findall(r"\b(?:vars|secrets)\.(\w+)", RELEASE.read_text())
    assert sorted(rows) == sorted({*settings})


def test_the_release_is_the_last_job_and_all_that_is_uploaded_is_used():
    assert list_required_jobs("release") == jobs(RELEASE).keys() - {"release"}
    uploaded = {
        re.sub(r"\$\{\{.*?\}\}", "*", step["with"]["name"])
        for step in steps(RELEASE)
        if "upload-artifact" in step.get("uses", "")
    }
    used = {
        re.sub(r"\$\{\{.*?\}\}", "*", step["with"]["pattern"])
        for step in steps(RELEASE)
        if "download-artifact" in step.get("uses", "")
    }
    assert {name.split("-")[0] for name in uploaded} == {pattern.split("-")[0] for pattern in used}


class Runner:
    """Runs scripts of the release as the forge does, in a copy of what they read.

    Attributes:
        folder: where they run.
        outputs: of the last step.
    """

    def __init__(self, folder):
        self.folder, self.outputs = folder / "work", {}
        self._programs = folder / "programs"
        self._programs.mkdir()
        self.folder.mkdir()
        for name in ("release", "pyproject.toml", "CHANGELOG.md"):
            (self.folder / name).symlink_to(ROOT / name)

    def double(self, name, script):
        """Put a program first on the path, which appends its arguments to the file `calls` and then runs the script."""
        file = self._programs / name
        file.write_text(f'#!/bin/sh\nprintf "%s " {name} "$@" >> calls\necho >> calls\n{script}\n')
        file.chmod(0o755)

    def calls(self):
        """Return the calls of doubles, each as its words."""
        return [shlex.split(line) for line in (self.folder / "calls").read_text().splitlines()]

    def run(self, job, named, **environment):
        """Run the job's step of that name; return the finished process."""
        (step,) = [step for step in jobs(RELEASE)[job]["steps"] if step.get("name", "").startswith(named)]
        output = self.folder / "output"
        output.unlink(missing_ok=True)
        # What the forge runs for `shell: bash`; without it pipefail is missing.
        assert yaml.safe_load(RELEASE.read_text())["defaults"] == {"run": {"shell": "bash"}}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.folder,
            env={
                "PATH": f"{self._programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
                "GITHUB_OUTPUT": str(output),
                "HOME": str(self.folder),
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if output.exists():
            self.outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
        return done


@pytest.fixture
def runner(tmp_path):
    """Return a runner in an empty folder."""
    return Runner(tmp_path)


def test_a_tag_of_another_version_ends_the_release(runner):
    assert runner.run("check", "Refuse", GITHUB_REF_NAME=f"v{VERSION}").returncode == 0
    done = runner.run("check", "Refuse", GITHUB_REF_NAME="v99.0.0")
    assert done.returncode == 1
    assert "error: the tag v99.0.0 is not that of version" in done.stderr


def test_names_are_those_that_a_registry_takes(runner):
    runner.run("check", "Name", GITHUB_REF_NAME="v0.1.0", REGISTRY="ghcr.io/Drawbar-Project")
    assert runner.outputs == {"version": "0.1.0", "registry": "ghcr.io/drawbar-project"}


@pytest.mark.parametrize("base", ["", "mirror.example.com/python:3.11.1-slim@sha256:0"])
@pytest.mark.parametrize(
    ("target", "options"), [("production", []), ("simulation", ["--target", "simulation"])]
)
def test_an_image_is_built_of_its_target_and_tried(runner, target, options, base):
    runner.double("podman", "")
    runner.double("git", "echo 1700000000")
    done = runner.run(
        "image",
        "Build",
        TARGET=target,
        BASE=base,
        ARCH="arm64",
        IMAGE="r.example.com/drawbar",
        TAG="0.1.0-x",
        VERSION="0.1.0",
        GITHUB_SHA="abc",
        GITHUB_SERVER_URL="https://forge.example.com",
        GITHUB_REPOSITORY="a/b",
    )
    assert done.returncode == 0, done.stderr
    _, build, tried = runner.calls()
    assert [build[at : at + 2] for at, word in enumerate(build) if word == "--target"] == (
        [options] if options else []
    )
    arguments = [build[at + 1].split("=", 1) for at, word in enumerate(build) if word == "--build-arg"]
    assert dict(arguments) == {
        "SOURCE_DATE_EPOCH": "1700000000",
        "VERSION": "0.1.0",
        "REVISION": "abc",
        "CREATED": "2023-11-14T22:13:20Z",
    } | ({"BASE": base} if base else {})
    stated = re.findall(r"^ARG (\w+)", (ROOT / "deploy/image/Containerfile").read_text(), re.MULTILINE)
    assert {name for name, _ in arguments} <= set(stated)
    assert build[-3:] == ["--tag", "r.example.com/drawbar:0.1.0-x-arm64", "."]
    assert tried == ["podman", "run", "--rm", "r.example.com/drawbar:0.1.0-x-arm64", "--version"]


def test_the_index_has_both_architectures_by_their_digests(runner):
    runner.double("podman", 'case "$2" in push) echo -n "sha256:index" > digest;; esac')
    digests = runner.folder / "digests"
    digests.mkdir()
    for arch in ("amd64", "arm64"):
        (digests / f"production-{arch}").write_text(f"sha256:{arch}")
    done = runner.run("index", "Push", TARGET="production", IMAGE="r.example.com/drawbar", TAG="0.1.0")
    assert done.returncode == 0, done.stderr
    assert [call[-1] for call in runner.calls() if "add" in call] == [
        "docker://r.example.com/drawbar@sha256:amd64",
        "docker://r.example.com/drawbar@sha256:arm64",
    ]
    assert runner.outputs == {"digest": "sha256:index"}
    published = (runner.folder / "published" / "production").read_text()
    assert published == "- image, production: `r.example.com/drawbar:0.1.0@sha256:index`\n"


def test_an_index_without_one_of_the_architectures_is_not_pushed(runner):
    runner.double("podman", "")
    (runner.folder / "digests").mkdir()
    (runner.folder / "digests" / "production-amd64").write_text("sha256:amd64")
    done = runner.run("index", "Push", TARGET="production", IMAGE="r.example.com/drawbar", TAG="0.1.0")
    assert done.returncode != 0
    assert not [call for call in runner.calls() if "push" in call]


@pytest.mark.parametrize(
    ("printed", "status"),
    [
        pytest.param(f"Pushed: r.example.com/charts/drawbar:0.1.0\nDigest: {DIGEST}", 0, id="pushed"),
        pytest.param("Pushed: r.example.com/charts/drawbar:0.1.0", 1, id="no digest"),
    ],
)
def test_the_charts_digest_comes_from_helms_output(runner, printed, status):
    runner.double("helm", f"[ $1 = package ] || printf '{printed}\n' >&2")
    done = runner.run("chart", "Push", CHARTS="r.example.com/charts", VERSION="0.1.0")
    assert done.returncode == status, done.stderr
    assert runner.outputs == ({} if status else {"digest": DIGEST})
    package, push = runner.calls()
    assert package[1:3] == ["package", "deploy/drawbar"]
    assert push[1:4] == ["push", "dist/drawbar-0.1.0.tgz", "oci://r.example.com/charts"]


async def test_the_chart_is_packaged_whole_under_the_name_that_is_pushed(engine, tmp_path):
    await engine.call("helm_package", path=str(ROOT / "deploy" / "drawbar"), destination=str(tmp_path))
    (archive,) = tmp_path.iterdir()
    assert archive.name == f"drawbar-{VERSION}.tgz"
    with tarfile.open(archive) as tar:
        names = {name.removeprefix("drawbar/") for name in tar.getnames()}
    chart = ROOT / "deploy" / "drawbar"
    assert names == {str(path.relative_to(chart)) for path in chart.rglob("*") if path.is_file()}


def test_the_release_has_programs_manifest_sums_and_notes(runner):
    dist, published = runner.folder / "dist", runner.folder / "published"
    dist.mkdir()
    published.mkdir()
    (published / "chart").write_text("- chart: `oci://r.example.com/charts/drawbar`\n")
    for arch in ("amd64", "arm64"):
        with tarfile.open(dist / f"kubectl-drawbar_{VERSION}_linux_{arch}.tar.gz", "w:gz") as tar:
            for name, mode in (("kubectl-drawbar", 0o755), ("LICENSE", 0o644)):
                member = tarfile.TarInfo(name)
                member.mode = mode
                tar.addfile(member, io.BytesIO())
    names = {"HOMEPAGE": "https://forge.example.com/a/b", "GITHUB_REF_NAME": f"v{VERSION}"}
    done = runner.run("release", "Write", **names)
    assert done.returncode == 0, done.stderr
    manifest = (dist / "drawbar.yaml").read_text()
    assert f"uri: https://forge.example.com/a/b/releases/download/v{VERSION}/kubectl-drawbar_" in manifest
    sums = dict(line.split("  ")[::-1] for line in (dist / "SHA256SUMS").read_text().splitlines())
    assert sums == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in dist.iterdir()
        if path.name != "SHA256SUMS"
    }
    assert len(sums) == 3
    notes = (runner.folder / "notes.md").read_text()
    assert f"](https://forge.example.com/a/b/blob/v{VERSION}/docs/" in notes
    assert notes.endswith("\n## Published\n\n- chart: `oci://r.example.com/charts/drawbar`\n")
    runner.double("gh", "")
    assert runner.run("release", "Make", VERSION=VERSION, **names).returncode == 0
    (call,) = runner.calls()
    assert call[:5] == ["gh", "release", "create", f"v{VERSION}", "--verify-tag"]
    assert {word for word in call if word.startswith("dist/")} == {
        f"dist/{path.name}" for path in dist.iterdir()
    }
