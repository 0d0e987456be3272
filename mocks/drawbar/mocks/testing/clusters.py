"""A whole cluster of doubles, for the fixtures `drawbar_cluster` and `drawbar_session_cluster`."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drawbar.mocks.testing import processes


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningNode:
    """The paths and names of one node.

    Attributes:
        name: the name of the Node, and of its host in the fabric.
        registry: the folder for registration sockets of kubelet plugins.
        plugins: the folder for the plugins' own sockets and files.
        cdi: the folder for CDI files.
        sysfs: the mocked tree; a device appears there when the fabric attaches it.
        uevents: the address of the socket that receives the hot-plug uevents.
    """

    name: str
    registry: Path
    plugins: Path
    cdi: Path
    sysfs: Path
    uevents: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCluster:
    """A running cluster.

    Attributes:
        kubeconfig: the administrator's file.
        kubeconfigs: the files of the service accounts, by name.
        fabric_endpoint: the address of the simulated fabric.
        nodes: the nodes by name.
        logs: a folder with a log file per process.
        ready: the ready line of `drawbar mock cluster`.
    """

    kubeconfig: Path
    kubeconfigs: Mapping[str, Path]
    fabric_endpoint: str
    nodes: Mapping[str, RunningNode]
    logs: Path
    ready: Mapping[str, Any] = field(repr=False)


@contextlib.contextmanager
def running(folder: Path, wanted: Mapping[str, Any]) -> Iterator[RunningCluster]:
    """Run a cluster until the block ends, and yield it.

    Args:
        folder: the folder for files of the run.
        wanted: the settings of the marker `drawbar`.

    Raises:
        processes.NotReady: it does not start.
    """
    with processes.running("cluster", folder / "cluster.log", *_arguments(folder, wanted)) as ready:
        yield parse_ready_line(ready)


def parse_ready_line(ready: Mapping[str, Any]) -> RunningCluster:
    """Return the ready line of `drawbar mock cluster` as a value."""
    return RunningCluster(
        kubeconfig=Path(ready["kubeconfig"]),
        kubeconfigs={name: Path(file) for name, file in ready["kubeconfigs"].items()},
        fabric_endpoint=ready["fabric"]["endpoint"],
        nodes={
            name: RunningNode(
                name=name,
                registry=Path(paths["registry"]),
                plugins=Path(paths["plugins"]),
                cdi=Path(paths["cdi"]),
                sysfs=Path(paths["sysfs"]),
                uevents=paths["uevents"],
            )
            for name, paths in ready["nodes"].items()
        },
        logs=Path(ready["logs"]),
        ready=ready,
    )


def _arguments(folder: Path, wanted: Mapping[str, Any]) -> list[str]:
    options = {
        "--profile": wanted.get("profile"),
        "--nodes": wanted.get("nodes"),
        "--slots": wanted.get("slots"),
        "--poll-seconds": wanted.get("poll_seconds"),
        "--fabric": _file(folder / "fabric.json", wanted.get("fabric")),
        "--faults": _file(folder / "faults.json", wanted.get("faults")),
    }
    arguments = [f"{name}={value}" for name, value in options.items() if value is not None]
    return [*arguments, *(["--daemons"] if wanted.get("daemons") else [])]


def _file(path: Path, content: object) -> str | None:
    """Return a file's name unchanged; write any other content into `path` and return that path."""
    if content is None or isinstance(content, str):
        return content
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)
