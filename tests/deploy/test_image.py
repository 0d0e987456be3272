"""The image: what is pinned, what is in it, and that both daemons start from it and do their work.

No image can be built here. What can be done is to run the image's own steps, which are one script, into an empty root,
and to start the program there with an interpreter that sees these packages alone, by the commands of the chart.
"""

import asyncio
import contextlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest

from drawbar.driver import main
from drawbar.driver.kube import kinds

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "deploy" / "image"
SECONDS = 600
PACKAGES = "usr/local/lib/drawbar"
PROGRAMS = "usr/local/bin"
BILL = "usr/local/share/drawbar/sbom.cdx.json"


def read_lock_file(name):
    """Return by package its version and the hashes of its files."""
    text = (ROOT / name).read_text()
    assert "://" not in text
    return {
        match[1]: (match[2], frozenset(re.findall(r"--hash=sha256:([0-9a-f]{64})", match[3])))
        for match in re.finditer(r"^([a-z0-9.-]+)==(\S+)((?: \\\n +--hash=\S+)*)", text, re.MULTILINE)
    }


@pytest.mark.parametrize(
    "name",
    ["requirements.txt", "requirements-build.txt", "requirements-simulation.txt"],
)
def test_the_images_packages_are_those_that_are_tested_each_with_its_hashes(name):
    tested = read_lock_file("requirements-dev.txt")
    pinned = read_lock_file(f"deploy/image/{name}")
    assert {key: tested.get(key) for key in pinned} == pinned
    assert all(hashes for _, hashes in pinned.values())


def test_nothing_that_drawbar_needs_is_missing_and_nothing_of_the_tests_is_there():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    names = [re.match(r"[\w-]+", requirement)[0] for requirement in project["project"]["dependencies"]]
    pinned = read_lock_file("deploy/image/requirements.txt")
    assert [name for name in names if name not in pinned] == []
    assert not {"pytest", "asyncinotify", "hatchling", "pip", "setuptools"} & pinned.keys()
    assert not {"aiohttp-retry", "typer", "prompt-toolkit"} & pinned.keys()
    assert "hatchling" in read_lock_file("deploy/image/requirements-build.txt")


def test_the_build_file_is_pinned_runs_the_same_script_and_ends_as_a_user_without_rights():
    lines = (IMAGE / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    words = [line.split(None, 1) for line in lines if line.strip() and not line.startswith("#")]
    (base,) = [rest for word, rest in words if word == "ARG" and rest.startswith("BASE=")]
    locked_for = re.search(r"--python-version ([\d.]+\d)", (ROOT / "Makefile").read_text())[1]
    # With the registry: podman knows no short names where none are configured.
    assert re.fullmatch(
        rf"BASE=docker\.io/\S+:{re.escape(locked_for)}\.\d+-slim-\w+@sha256:[0-9a-f]{{64}}", base
    )
    stages = [rest.split() for word, rest in words if word == "FROM"]
    assert {stage[0] for stage in stages} <= {"${BASE}", *(stage[2] for stage in stages[:-1])}
    assert "deploy/image/install --base / /root-of-image" in [rest for word, rest in words if word == "RUN"]
    assert [rest for word, rest in words if word == "USER"] == ["65532:65532"]
    assert "ADD" not in [word for word, _ in words]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"VERSION={version}" in [rest for word, rest in words if word == "ARG"]


def test_the_default_build_target_has_no_doubles():
    """The last stage is built by default; neither it nor a stage below it has doubles."""
    stages = re.split(r"^FROM ", (IMAGE / "Containerfile").read_text(), flags=re.MULTILINE)[1:]
    by_name = {match[1]: stage for stage in stages if (match := re.match(r"\S+ AS (\S+)\n", stage))}
    waiting, used = [stages[-1]], []
    while waiting:
        stage = waiting.pop()
        used.append(stage)
        names = [stage.split()[0], *re.findall(r"--from=(\S+)", stage)]
        waiting += [by_name[name] for name in names if name in by_name]
    assert len(used) == 4
    assert not [stage for stage in used if "simulation" in stage or " mock " in stage]
    assert "--simulation" in by_name["root-of-simulation"]


@pytest.fixture(scope="session")
def roots(tmp_path_factory):
    """Return two roots that are made at the same time."""
    folder = tmp_path_factory.mktemp("image")
    folders = [folder / "one", folder / "two"]
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, IMAGE / "install", root],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
            for root in folders
        ]
        reported = [process.communicate(timeout=SECONDS)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0], reported
    return folders


def describe_files(root):
    """Return mode, time and content of each file by path, as in a layer of an image."""
    files = {}
    for path in (root, *sorted(root.rglob("*"))):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        files[str(path.relative_to(root))] = (status.st_mode, status.st_mtime, content)
    return files


@pytest.mark.tool("chart")
@pytest.mark.timeout(SECONDS)
def test_two_installations_give_the_same_files(roots):
    first, second = (describe_files(root) for root in roots)
    assert [path for path in first.keys() | second.keys() if first.get(path) != second.get(path)] == []
    assert all(str(root).encode() not in content for root in roots for _, _, content in first.values())


@pytest.mark.tool("chart")
@pytest.mark.timeout(SECONDS)
def test_the_bill_of_materials_has_each_package_with_the_hash_that_was_asked_for(roots):
    bill = json.loads((roots[0] / BILL).read_text())
    asked = read_lock_file("deploy/image/requirements.txt")
    reported = {
        component["name"]: (component["version"], component["hashes"][0]["content"])
        for component in bill["components"]
    }
    assert {name: version for name, (version, _) in reported.items()} == {
        name: version for name, (version, _) in asked.items()
    }
    assert [name for name, (_, content) in reported.items() if content not in asked[name][1]] == []
    own = bill["metadata"]["component"]
    assert own["name"] == "drawbar"
    needs = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    assert needs.keys() == {own["purl"], *(component["purl"] for component in bill["components"])}
    assert any(reference.startswith("pkg:pypi/grpcio@") for reference in needs[own["purl"]])


STATUS = """\
Package: libssl3
Status: install ok installed
Architecture: amd64
Source: openssl
Version: 3.0.17-1~deb12u2
Description: Secure Sockets Layer toolkit
 with a line: that continues

Package: old
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: libstdc++6
Status: install ok installed
Architecture: amd64
Version: 1:12.2.0-14+deb12u1
"""


def bill_on(base, folder):
    """Return the components that the bill of materials of nothing has on this base."""
    info = folder / "packages" / "drawbar-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: drawbar\nVersion: 0.1.0\n")
    report, output = folder / "report.json", folder / "bill.json"
    report.write_text('{"install": []}')
    words = [sys.executable, IMAGE / "sbom", folder / "packages", report, output, base]
    subprocess.run(words, env=os.environ | {"SOURCE_DATE_EPOCH": "0"}, check=True)
    return json.loads(output.read_text())["components"]


@pytest.mark.parametrize(
    ("system", "distro"),
    [('ID=debian\nVERSION_ID="12"\n', "debian-12"), ("ID=debian\n", "debian")],
    ids=["a release", "the next release"],
)
def test_the_bill_of_materials_of_an_image_has_its_debian_packages_and_its_interpreter(
    tmp_path, system, distro
):
    base = tmp_path / "base"
    (base / "var/lib/dpkg").mkdir(parents=True)
    (base / "var/lib/dpkg/status").write_text(STATUS)
    (base / "etc").mkdir()
    (base / "etc/os-release").write_text(system)
    python, *packages = bill_on(base, tmp_path)
    assert python["purl"] == f"pkg:generic/python@{platform.python_version()}"
    assert [package["purl"] for package in packages] == [
        f"pkg:deb/debian/libssl3@3.0.17-1~deb12u2?arch=amd64&distro={distro}",
        f"pkg:deb/debian/libstdc%2B%2B6@1:12.2.0-14%2Bdeb12u1?arch=amd64&distro={distro}",
    ]
    assert {package["name"]: package["version"] for package in packages} == {
        "libssl3": "3.0.17-1~deb12u2",
        "libstdc++6": "1:12.2.0-14+deb12u1",
    }


def test_a_base_without_dpkg_leaves_the_interpreter(tmp_path):
    (python,) = bill_on(tmp_path, tmp_path)
    assert python["name"] == "python"


@pytest.mark.tool("chart")
@pytest.mark.timeout(SECONDS)
def test_neither_an_installer_nor_a_double_nor_a_way_to_other_code_is_in_it(roots):
    packages = {path.relative_to(roots[0] / PACKAGES).parts[0] for path in (roots[0] / PACKAGES).iterdir()}
    assert not {"pip", "setuptools", "pytest", "hatchling", "bin"} & packages
    assert not (roots[0] / PACKAGES / "drawbar" / "mocks").exists()
    # It takes devices of virtual machines by whatever socket a Fabric names.
    assert not (roots[0] / PACKAGES / "drawbar" / "fabric" / "qemu").exists()
    (points,) = (roots[0] / PACKAGES).glob("drawbar-*.dist-info/entry_points.txt")
    registered = points.read_text()
    assert "drawbar.fabric.grpc" in registered
    assert not [name for name in ("mocks", "qemu") if name in registered]
    assert [path for path in roots[0].rglob("*") if path.suffix == ".pth" or path.is_symlink()] == []
    words = [sys.executable, "-IS", roots[0] / PROGRAMS / "drawbar", "--help"]
    printed = subprocess.run(words, capture_output=True, text=True, check=True)
    verbs = set(re.findall(r"^ {2}([\w-]+) {2}", printed.stdout, re.MULTILINE))
    assert verbs == set(main.VERBS)


class Installed:
    """The program of an installed root, run by the commands that the chart has."""

    def __init__(self, root, cluster, stack):
        self.root, self.cluster, self.stack = root, cluster, stack
        self.processes = {}

    async def start(self, workload, environment):
        """Start the only container's command of a workload, with the file of settings that its pods get."""
        name = workload["metadata"]["name"]
        maps = await self.cluster.list_by_name(kinds.CONFIG_MAP, "drawbar")
        ((key, text),) = maps[name]["data"].items()
        file = self.cluster.path / f"installed-{key}"
        file.write_text(text)
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        defaults = {
            variable["name"]: variable["value"] for variable in container["env"] if "value" in variable
        }
        variables = defaults | environment

        async def run(command, output):
            words = [word.replace(f"/etc/drawbar/{key}", str(file)) for word in command[1:]]
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-IS", str(self.root / PROGRAMS / command[0]), *words),
                env={"PATH": os.defpath, **variables},
                stdout=output,
                stderr=output,
            )

        log = self.stack.enter_context((self.cluster.path / f"{name}.log").open("wb"))
        process = await run(container["command"], log)
        self.processes[name] = process
        self.stack.push_async_callback(end, process)

        async def status():
            assert process.returncode is None, f"{name} ended; its log is {log.name}"
            probe = await run(container["readinessProbe"]["exec"]["command"], asyncio.subprocess.DEVNULL)
            return await probe.wait()

        await self.cluster.until(status, lambda value: value == 0, seconds=60)


async def end(process):
    """End it; return its status."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    return await process.wait()


@pytest.mark.tool("chart")
@pytest.mark.timeout(SECONDS)
async def test_both_daemons_start_from_it_by_the_charts_commands_and_give_a_pod_its_device(
    roots, chart_cluster
):
    async with chart_cluster() as cluster, contextlib.AsyncExitStack() as stack:
        await cluster.install()
        await cluster.start_doubles(stack)
        workloads = await cluster.workloads()
        image = Installed(roots[0], cluster, stack)
        token = cluster.server.kubeconfig(cluster.path / "c.kubeconfig", "drawbar:drawbar-controller")
        await image.start(
            workloads["Deployment"]["drawbar-controller"],
            {
                "POD_NAME": "drawbar-controller-1",
                "DRAWBAR_KUBECONFIG": str(token),
                "DRAWBAR_HTTP_ADDRESS": f"unix:{cluster.path / 'c.sock'}",
            },
        )
        home = cluster.path / "node-1"
        token = cluster.server.kubeconfig(
            cluster.path / "n.kubeconfig", "drawbar:drawbar-node", node="node-1"
        )
        await image.start(
            workloads["DaemonSet"]["drawbar-node"],
            {
                "NODE_NAME": "node-1",
                "POD_UID": "5f1b5a2e-0000-4000-8000-000000000001",
                "DRAWBAR_KUBECONFIG": str(token),
                "DRAWBAR_HTTP_ADDRESS": f"unix:{cluster.path / 'n.sock'}",
                "DRAWBAR_KUBELET_DIR": str(home / "k"),
                "DRAWBAR_CDI_DIR": str(home / "k" / "cdi"),
                "DRAWBAR_SYSFS": str(home / "sys"),
                "DRAWBAR_UEVENTS": f"unix:{home / 'uevents'}",
            },
        )
        # The one whose pool the scheduler looks at must have a daemon.
        await cluster.start_node("node-2")
        await cluster.declare_fabric()
        await cluster.run_pod("first")
        assert [await end(process) for process in image.processes.values()] == [0, 0]


@pytest.mark.tool("chart")
@pytest.mark.timeout(SECONDS)
def test_the_image_of_a_simulation_has_the_doubles_that_the_chart_starts(tmp_path):
    root = tmp_path / "root"
    subprocess.run([sys.executable, IMAGE / "install", "--simulation", root], check=True, capture_output=True)
    program = [sys.executable, "-IS", str(root / PROGRAMS / "drawbar")]
    assert not (root / PACKAGES / "drawbar" / "fabric" / "qemu").exists()
    # Its module is what the image brings beside the production image.
    subprocess.run([*program, "mock", "host", "--help"], check=True, capture_output=True)
    tree = [*program, "mock", "sysfs", "empty-node", "--root", str(tmp_path / "sys"), "--react"]
    with tempfile.TemporaryDirectory(prefix="d") as folder:
        serve = ["mock", "fabric", "--listen", f"unix:{folder}/f", "--devices", "gpu=1"]
        for words in ([*program, *serve], tree):
            with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
                line = process.stdout.readline()
                process.terminate()
                assert json.loads(line)["ready"]
    assert json.loads((root / BILL).read_text())["components"]
