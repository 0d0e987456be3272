"""A whole cluster of doubles, as the fixtures `drawbar_cluster` and `drawbar_session_cluster` give it."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drawbar.mocks.testing import processes


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningNode:
    """One node's places.

    Attributes:
        name: the Node's name, which is also its host's in the fabric.
        registry: where a kubelet plugin puts its registration socket.
        plugins: where plugins keep their own sockets and files.
        cdi: where CDI files go.
        sysfs: the mocked tree; devices appear there when the fabric attaches them.
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
    """A cluster that serves.

    Attributes:
        kubeconfig: the file of a caller who may do everything.
        kubeconfigs: the files of the service accounts, by name.
        fabric_endpoint: where the simulated fabric listens.
        nodes: by name.
        logs: a folder with a log file per process.
        said: everything that `drawbar mock cluster` printed.
    """

    kubeconfig: Path
    kubeconfigs: Mapping[str, Path]
    fabric_endpoint: str
    nodes: Mapping[str, RunningNode]
    logs: Path
    said: Mapping[str, Any] = field(repr=False)


@contextlib.contextmanager
def running(folder: Path, wanted: Mapping[str, Any]) -> Iterator[RunningCluster]:
    """A cluster for as long as the block lasts.

    Args:
        folder: for files of the run.
        wanted: what the marker `drawbar` says.

    Raises:
        processes.NotReady: it does not start.
    """
    with processes.running("cluster", folder / "cluster.log", *_arguments(folder, wanted)) as said:
        yield described(said)


def described(said: Mapping[str, Any]) -> RunningCluster:
    """The ready line of `drawbar mock cluster` as a value."""
    return RunningCluster(
        kubeconfig=Path(said["kubeconfig"]),
        kubeconfigs={name: Path(file) for name, file in said["kubeconfigs"].items()},
        fabric_endpoint=said["fabric"]["endpoint"],
        nodes={
            name: RunningNode(
                name=name,
                registry=Path(places["registry"]),
                plugins=Path(places["plugins"]),
                cdi=Path(places["cdi"]),
                sysfs=Path(places["sysfs"]),
                uevents=places["uevents"],
            )
            for name, places in said["nodes"].items()
        },
        logs=Path(said["logs"]),
        said=said,
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
    given = [f"{name}={value}" for name, value in options.items() if value is not None]
    return [*given, *(["--daemons"] if wanted.get("daemons") else [])]


def _file(place: Path, content: object) -> str | None:
    """A file's name as it is; anything else is written into `place`."""
    if content is None or isinstance(content, str):
        return content
    place.write_text(json.dumps(content), encoding="utf-8")
    return str(place)
