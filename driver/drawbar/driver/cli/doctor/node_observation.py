"""The reader of this node: files, sockets, the node daemon's own pages, and the API server if one answers."""

import asyncio
import errno
import os
import socket
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from drawbar.driver import errors
from drawbar.driver.api import core, leftout, slices
from drawbar.driver.cli.doctor import machine_observation, observed, reading
from drawbar.driver.cli.doctor.findings import Unread
from drawbar.driver.cli.doctor.plans import host as host_plan
from drawbar.driver.cli.doctor.plans import machine
from drawbar.driver.kube import client, config, kinds
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.node import errors as node_errors
from drawbar.driver.node import settings, uevents
from drawbar.driver.node.local import neighbours
from drawbar.driver.node.operation import host
from drawbar.driver.node.plugin import sockets
from drawbar.driver.operation import address as http_address
from drawbar.fabric.classes import DeviceClass

CONNECT_SECONDS = 1.0
SOCKETS_MAX = 32
FILES_MAX = 32
FILE_LIMIT_BYTES = 1024 * 1024
WORDS_MAX = 300
# The files of each runtime, in the order in which it reads them. Those of k3s and RKE2 are made from these.
_CONFIGURATIONS = (
    ("containerd", "etc/containerd/config.toml"),
    ("containerd", "etc/containerd/conf.d/*.toml"),
    ("containerd", "var/lib/rancher/k3s/agent/etc/containerd/config.toml"),
    ("containerd", "var/lib/rancher/rke2/agent/etc/containerd/config.toml"),
    ("cri-o", "etc/crio/crio.conf"),
    ("cri-o", "etc/crio/crio.conf.d/*.conf"),
)


async def observe(
    options: settings.Settings, problems: tuple[str, ...], *, kubeconfig: str | None, root: Path | None
) -> host_plan.Host:
    """Return the observed state of this node; raise nothing.

    Args:
        options: the node daemon's settings.
        problems: the mistakes in the settings.
        kubeconfig: the file for access to the API server; None for the daemon's own access.
        root: the root of the host's own files; None if they are not to be read.
    """
    local = await asyncio.to_thread(_local, options, problems, root)
    cluster = await _cluster(options, kubeconfig)
    prepared = await machine_observation.observe(options.sysfs, root)
    return msgspec.structs.replace(
        local,
        clock=cluster.clock,
        node=cluster.node,
        offline=cluster.offline,
        machine=msgspec.structs.replace(prepared, wanted=cluster.wanted),
    )


def _local(options: settings.Settings, problems: tuple[str, ...], root: Path | None) -> host_plan.Host:
    registry = options.kubelet_dir / "plugins_registry"
    facts = host.facts((registry, options.data_dir, options.cdi_dir), options.sysfs)
    verdict = host.find_missing(
        facts, on_host=options.uevents == uevents.KERNEL, in_pod=bool(options.instance)
    )
    knocked, too_long = _sockets(options)
    return host_plan.Host(
        node_name=options.node_name,
        problems=problems,
        fatal=verdict.fatal,
        warnings=verdict.warnings,
        sockets=knocked,
        too_long=too_long,
        registry=(str(registry), registry.is_dir()),
        alive=_page(options, "/healthz"),
        ready=_page(options, "/readyz"),
        runtime_files=None if root is None else tuple(_files(root)),
        cdi_dir=str(options.cdi_dir),
        clock=None,
        offline="",
        node=None,
        machine=machine.Machine(),
        left_out=_read_left_out(options),
    )


def _read_left_out(options: settings.Settings) -> tuple[leftout.LeftOut, ...] | Unread:
    """Return the devices in the node daemon's record of left-out devices; empty without a record."""
    path = options.data_dir / neighbours.FILE
    what = "the devices that are left out"
    try:
        with path.open("rb") as file:
            return leftout.decode(file.read(FILE_LIMIT_BYTES))
    except FileNotFoundError:
        if options.data_dir.is_dir():
            return ()
        return Unread(
            what=what,
            why=f"no node daemon has run here: there is no {options.data_dir}",
            remedy="start the node daemon, or name the kubelet's own directory with kubeletDir",
        )
    except OSError as error:
        why = f"{path}: {error.strerror or os.strerror(error.errno or errno.EIO)}"
        return Unread(what=what, why=why, remedy="run this as root")


def _sockets(options: settings.Settings) -> tuple[tuple[host_plan.Socket, ...] | None, str]:
    """Return the registration sockets of this and other instances, or None and the reason why none is possible."""
    try:
        own = sockets.paths(options.kubelet_dir, options.driver, options.instance).registration
    except node_errors.SocketError as error:
        return None, str(error)
    former = sorted(own.parent.glob(f"{options.driver}-*reg.sock"))[:SOCKETS_MAX]
    paths = [path for path in dict.fromkeys((own, *former)) if _is_socket(path)]
    return tuple(host_plan.Socket(path=str(path), knock=_knock(path)) for path in paths), ""


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return False


def _knock(path: Path) -> host_plan.Knock:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_SECONDS)
        try:
            refused = probe.connect_ex(str(path))
        except OSError as error:
            refused = error.errno or errno.EIO
    by_error = {0: host_plan.Knock.ANSWERS, errno.ENOENT: host_plan.Knock.ABSENT}
    return by_error.get(refused, host_plan.Knock.REFUSES)


def _page(options: settings.Settings, path: str) -> host_plan.Page | None:
    try:
        endpoint = settings.parse_endpoint(options.http.address, options.data_dir, options.instance)
    except errors.UsageError:
        return None
    if endpoint is None:
        return None
    try:
        verdict = http_address.ask(endpoint, path, settings="settings as this")
    except http_address.AddressError as error:
        return host_plan.Page(good=None, text=str(error))
    return host_plan.Page(good=verdict.good, text=" ".join(verdict.text.split())[:WORDS_MAX])


def _files(root: Path) -> Iterator[host_plan.File]:
    for name, pattern in _CONFIGURATIONS:
        for path in sorted(root.glob(pattern))[:FILES_MAX]:
            shown = f"/{path.relative_to(root)}"
            try:
                with path.open("rb") as file:
                    text = file.read(FILE_LIMIT_BYTES).decode(errors="replace")
            except OSError as error:
                problem = error.strerror or os.strerror(error.errno or errno.EIO)
                yield host_plan.File(runtime=name, path=shown, problem=problem)
            else:
                yield host_plan.File(runtime=name, path=shown, text=text)


class _Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the cluster that concerns a node.

    Attributes:
        clock: the API server's clock; None if no API server answers.
        node: this node's object.
        offline: the reason why no API server answers.
        wanted: the classes of device that fabrics offer; None if not known.
    """

    clock: observed.Clock | None = None
    node: observed.Reading[core.Node | None] = None
    offline: str = ""
    wanted: Mapping[DeviceClass, int] | None = None


async def _cluster(options: settings.Settings, kubeconfig: str | None) -> _Cluster:
    try:
        connection = config.load(kubeconfig or options.kubeconfig)
        moment = await reading.read_clock(connection)
    except (kube_errors.ConfigError, reading.CannotCheck) as error:
        return _Cluster(offline=str(error))
    async with client.connecting(connection) as api:
        asked = reading.Reader(api)
        published = await asked.list_all(
            kinds.SLICE, into=slices.ResourceSlice, fields=f"spec.driver={options.driver}"
        )
        wanted = None if isinstance(published, Unread) else machine_observation.measure_classes(published)
        node: observed.Reading[core.Node | None] = Unread(
            what="this node's object", why="its name is not known", remedy="set NODE_NAME"
        )
        if options.node_name:
            node = await asked.find(kinds.NODE, options.node_name, into=core.Node)
    return _Cluster(clock=moment, node=node, wanted=wanted)
