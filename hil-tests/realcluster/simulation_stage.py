"""The stage `simulation`: docs/try-it.md, command by command, on a node with containerd and runc.

All hardware is pretended by the chart itself, out of the image's second target; the control plane, the kubelet, the runtime and
CDI are real. Only Helm's commands are its engine's; and as the API server does not reach the kubelet of a node in a network of
its own, a command in a container is begun from outside, and logs are read from the node's files.
"""

import asyncio
import contextlib
import dataclasses
import functools
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drawbar.driver.kube import client, config, kinds
from drawbar.driver.kube import errors as kube_errors
from drawbar.mocks.testing import helm
from realcluster import chart_stage, container_node, control_plane, errors, images, stages

PAGE = images.CHECKOUT / "docs" / "try-it.md"
EXAMPLE = "docs/examples/try-it.yaml"
MODERN_SINCE = 36
DEVICE = "gpu-1"
"""That of the page; another pod may get another one."""
EXECUTED = re.compile(r"^kubectl -n drawbar exec \S+ -c (\w+) -- (.*)$")
LOGS = "kubectl logs deployment/train"
TOP = "drawbar status --watch"
LIVE = ("drawbar ui", TOP)
"""What runs beside the commands that follow it."""
INSTALL = "helm install "
OWN = ("kind create ", "deploy/image/load")
"""What the stage has done already, with a node and an image of its own."""
LIVE_SECONDS = 30.0
TERMINAL = {"TERM": "xterm", "LINES": "40", "COLUMNS": "160"}
PROCESSES = {
    "fabric": b"--control=unix:/run/drawbar/fabric/control.sock",
    "host": b"--uevents=/run/simulation/uevents",
}
"""By container an argument by which its process is recognised."""
COMMAND_SECONDS = 200.0


def commands(page: str) -> list[str]:
    """Return the commands of the page that a cluster runs, in their order; live ones are those that run beside the others."""
    blocks = re.findall(r"```sh (?:try|live)\n(.*?)```", page, re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def run(context: stages.Context) -> stages.Outcome:
    """Install it, and do what the page says."""
    if context.installed.release.minor < MODERN_SINCE:
        return stages.Outcome(
            skipped=True, text=f"{context.installed.release.name} has no binding conditions"
        )
    node = chart_stage.make_node(context.folder / "node")
    if (outcome := chart_stage.unavailable(node)) is not None:
        return outcome
    kubectl = context.installed.folder / "kubectl"
    if not kubectl.exists() and shutil.which("kubectl") is None:
        return stages.Outcome(
            skipped=True, text=f"kubectl is neither in {context.installed.folder} nor on PATH"
        )
    node.path.mkdir()
    context.say("making images")
    archive, image = images.simulation(context.folder)
    node = dataclasses.replace(
        node, images=(str(images.busybox(context.folder / "busybox.tar")), str(archive))
    )
    with context.plane(nodes=(chart_stage.NODE,)) as plane:
        try:
            asyncio.run(_try(context, plane, node, image))
        except (helm.HelmError, kube_errors.KubeError) as error:
            return stages.Outcome(failed=True, text=str(error))
    return stages.Outcome(
        text=f"{PAGE.name} is true: a pretended device from the fabric to a container and back"
    )


async def _try(
    context: stages.Context, plane: control_plane.ControlPlane, node: container_node.Node, image: str
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(client.connecting(config.from_kubeconfig(plane.admin)))
        component = chart_stage.component(plane, node, binds={})
        component.start()
        stack.callback(component.stop)
        engine = await stack.enter_async_context(
            helm.Helm.running(kubeconfig=plane.admin, call_seconds=2 * chart_stage.READY_SECONDS)
        )
        release = Simulation(api, engine, component, node, image, context.say)
        await release.node_is_ready()
        await release.follow(Reader(context, plane.admin, image, node.path / "log" / "pods"))


class Reader:
    """Runs the commands of the page as an administrator, in the checkout.

    Args:
        context: of the stage.
        kubeconfig: of the administrator.
        image: what the chart and the example have in place of the page's.
        logs: the node's folder of the logs of pods.
    """

    def __init__(self, context: stages.Context, kubeconfig: Path, image: str, logs: Path) -> None:
        self._logs = logs
        self._say = context.say
        self._folder = context.folder
        path = f"{context.installed.folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path}
        text = (images.CHECKOUT / EXAMPLE).read_text()
        self._example = context.folder / "try-it.yaml"
        self._example.write_text(re.sub(r"image: \S+", f"image: {image}", text))
        self.attachment, self.device = "", DEVICE
        self._begun: list[subprocess.Popen[bytes]] = []
        self._url = ""

    @contextlib.contextmanager
    def running_beside(self) -> Iterator[None]:
        """End at the end of the context what `begin` has begun."""
        try:
            yield
        finally:
            for process in self._begun:
                process.terminate()
                process.wait()

    def begin(self, command: str) -> None:
        """Begin a live command of the page, and wait until it shows the cluster.

        Raises:
            errors.RealClusterError: it does not.
        """
        self._say(command)
        ours, theirs = pty.openpty() if command == TOP else os.pipe()
        process = subprocess.Popen(
            shlex.split(command),
            stdin=theirs if command == TOP else subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.DEVNULL,
            env=self._environment | TERMINAL,
            cwd=images.CHECKOUT,
        )
        os.close(theirs)
        self._begun.append(process)
        wanted, shown = (self.device if command == TOP else "\n"), ""
        deadline = time.monotonic() + LIVE_SECONDS
        while wanted not in shown:
            readable, _, _ = select.select([ours], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise errors.RealClusterError(
                    f"{command} shows no {wanted!r} after {LIVE_SECONDS:g} s: {shown[-500:]}"
                )
            shown += os.read(ours, 65536).decode(errors="replace")
        os.close(ours)
        if command == TOP:
            process.terminate()
        else:
            self._url = shown.strip()

    def page(self) -> str:
        """Return what a browser is sent that opens the page of `drawbar ui` now."""
        with urllib.request.urlopen(f"{self._url}updates", timeout=LIVE_SECONDS) as stream:
            line: bytes = stream.readline()
        return line.decode()

    def do(self, command: str) -> str:
        """Run a command of the page; return what it prints.

        Raises:
            errors.RealClusterError: it failed.
        """
        self._say(command)
        if command == LOGS:
            return "".join(file.read_text() for file in self._logs.glob("default_train-*/train/*.log"))
        words = command.replace(DEVICE, self.device).replace(EXAMPLE, str(self._example))
        if executed := EXECUTED.match(words):
            argv = [
                "nsenter",
                f"--target={_process(executed[1])}",
                "--mount",
                "--net",
                "--ipc",
                "--uts",
                "--pid",
            ]
            argv += shlex.split(executed[2])
        else:
            argv = shlex.split(words)
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            env=self._environment,
            cwd=images.CHECKOUT,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        if done.returncode:
            raise errors.RealClusterError(
                f"{command} ended with {done.returncode}: {done.stderr.strip()[-500:]}"
            )
        sys.stderr.write(done.stdout)
        return done.stdout


class Simulation(chart_stage.Release):
    """A release whose hardware is pretended."""

    async def follow(self, reader: Reader) -> None:
        """Do what the page says, from its first command to its last."""
        with reader.running_beside():
            for command in commands(PAGE.read_text()):
                if command.startswith(OWN):
                    continue
                if command.startswith(INSTALL):
                    await self._helm(
                        "install", chart=str(chart_stage.CHART), values=self._values(0), create_namespace=True
                    )
                    continue
                if command in LIVE:
                    await asyncio.to_thread(reader.begin, command)
                    continue
                reported = await asyncio.to_thread(reader.do, command)
                await self._check(command.split(), reported, reader)
        await self._helm("uninstall")
        await self.settle(self._not_uninstalled)

    async def _check(self, words: list[str], reported: str, reader: Reader) -> None:
        """Compare what a command printed, or did, with what the page says of it."""
        match words:
            case ["kubectl", "rollout", *_]:
                (attachment,) = await self.objects(kinds.ATTACHMENT)
                reader.attachment, reader.device = (
                    attachment["metadata"]["uid"],
                    attachment["spec"]["deviceID"],
                )
            case ["drawbar", "status"]:
                self.expect("pod train-" in reported, "drawbar status shows the pod with its device")
            case ["kubectl", "logs", *_]:
                self.expect("_SERIAL=48-b0-2d" in reported, "the container has the variables of its GPU")
                self.expect("renderD128" in reported, "the container has the files of its GPU")
            case ["drawbar", "taint", "preview", *_]:
                self.expect("evicts 1 of 1 pod," in reported, f"the preview counts the pod: {reported}")
            case [*_, "set-health", _, "critical"]:
                await self.settle(self._find_missing_taint)
                await self.settle(functools.partial(self._unseen, reader))
            case [*_, "--pull", _]:
                await self.settle(functools.partial(self._uses, reader.attachment))

    def _values(self, burst: int) -> dict[str, Any]:
        return {"image": self._image, "simulation": {"enabled": True}}

    async def _find_missing_taint(self) -> list[str]:
        tainted = any("fabric-health" in str(each["spec"]) for each in await self.objects(kinds.SLICE))
        return [] if tainted else ["no device has the taint fabric-health"]

    async def _unseen(self, reader: Reader) -> list[str]:
        page = await asyncio.to_thread(reader.page)
        shown = f'"name":"{reader.device}"' in page and "fabric-health" in page
        return [] if shown else [f"drawbar ui does not show {reader.device} as ill"]

    async def _uses(self, before: str) -> list[str]:
        used = [each["metadata"]["uid"] for each in await self.objects(kinds.ATTACHMENT)]
        return [] if used and before not in used else [f"the attachments are {used}"]


def _process(container: str) -> int:
    """Return the id of a container's process.

    Raises:
        errors.RealClusterError: there is none.
    """
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if PROCESSES[container] in words:
                return int(folder.name)
    raise errors.RealClusterError(f"the container {container} does not run")
