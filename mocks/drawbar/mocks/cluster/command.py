"""`drawbar mock cluster`: all doubles at once, for driver developers, until a signal ends it.

It prints one line of JSON with all addresses and paths. It removes its files at the end.
"""

import argparse
import asyncio
import contextlib
import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drawbar.fabric import contract
from drawbar.fabric import errors as fabric_errors
from drawbar.mocks import attachments, errors
from drawbar.mocks.apiserver import profiles
from drawbar.mocks.cluster import cluster, paths, settings
from drawbar.mocks.cluster import errors as cluster_errors
from drawbar.mocks.fabric import configuration, pool

AMOUNTS = {
    contract.DeviceClass.GPU: 2,
    contract.DeviceClass.FPGA: 2,
    contract.DeviceClass.NVME: 2,
    contract.DeviceClass.CXL_MEMORY: 2,
    contract.DeviceClass.NIC: 2,
    contract.DeviceClass.ACCELERATOR: 2,
}
"""The pool's devices without --fabric, by class."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    usual = settings.Settings()
    add = parser.add_argument
    add(
        "--nodes",
        type=int,
        default=1,
        metavar="N",
        help="the number of nodes: node-1, node-2, ... (default: %(default)s)",
    )
    add(
        "--profile",
        choices=list(profiles.PROFILES),
        default=usual.profile,
        help="the Kubernetes release to imitate (default: %(default)s)",
    )
    add(
        "--fabric",
        type=Path,
        metavar="FILE",
        help="the fabric's enclosures, devices, times and failures, as JSON; the default is two chassis of mixed devices",
    )
    add(
        "--slots",
        type=int,
        default=usual.slots,
        metavar="N",
        help="the number of slots of a node (default: %(default)s)",
    )
    add(
        "--poll-seconds",
        type=float,
        default=usual.poll_seconds,
        metavar="SECONDS",
        help="the scheduler's pause between two checks of binding conditions (default: %(default)s)",
    )
    add("--daemons", action="store_true", help="also run Drawbar's controller and node daemons")
    add(
        "--kubeconfig-dir",
        type=Path,
        metavar="DIR",
        help="also put the kubeconfig files here; they are removed at the end",
    )
    add(
        "--service-account",
        action="append",
        default=[],
        metavar="NAMESPACE:NAME[:NODE]",
        help="also write a kubeconfig for this service account; repeat the option for several",
    )
    add("--faults", type=Path, metavar="FILE", help="faults of the API server, in force from the start")


async def serve(args: argparse.Namespace) -> int:
    """Run until a signal comes or the task is cancelled; the first line on stdout reports readiness.

    Raises:
        errors.UsageError: the arguments make no sense.
        cluster_errors.ClusterError: a process did not start, or ended.
    """
    options = _settings(args)
    _cancel_on_signals()
    async with cluster.Cluster.running(options) as running:
        with _copying(running.paths, args.kubeconfig_dir):
            print(json.dumps(_description(running, options, args.kubeconfig_dir)), flush=True)  # noqa: T201 - the ready line
            await asyncio.get_running_loop().create_future()
    return 0


def _settings(args: argparse.Namespace) -> settings.Settings:
    fabric = configuration.Configuration(enclosures=pool.make_enclosures(AMOUNTS))
    if args.fabric is not None:
        try:
            fabric = configuration.load(args.fabric)
        except fabric_errors.InvalidConfiguration as error:
            raise errors.UsageError(str(error)) from error
    return settings.Settings(
        nodes=tuple(f"node-{number}" for number in range(1, args.nodes + 1)),
        enclosures=fabric.enclosures,
        slots=args.slots,
        attach_seconds=fabric.attach_seconds,
        detach_seconds=fabric.detach_seconds,
        profile=args.profile,
        poll_seconds=args.poll_seconds,
        fabric=fabric,
        service_accounts=tuple(args.service_account),
        faults=args.faults,
        daemons=args.daemons,
    )


def _cancel_on_signals() -> None:
    """Cancel this task on the first signal; ignore later ones, because the clean-up is bounded."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in _SIGNALS:
        if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue  # nohup asked for this
        loop.add_signal_handler(number, lambda: None if task.cancelling() else task.cancel())


@contextlib.contextmanager
def _copying(where: paths.ClusterPaths, folder: Path | None) -> Iterator[None]:
    """Copy the kubeconfigs into the user's folder until the block ends."""
    if folder is None:
        yield
        return
    copies: list[Path] = []
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in sorted(where.kubeconfigs.iterdir()):
            copies.append(folder / file.name)
            shutil.copy2(file, copies[-1])
    except OSError as error:
        raise cluster_errors.ClusterError(
            f"the kubeconfigs cannot be put into {folder}: {error.strerror}; name another folder"
        ) from error
    try:
        yield
    finally:
        for copy in copies:
            copy.unlink(missing_ok=True)
        if made:
            with contextlib.suppress(OSError):
                folder.rmdir()  # stays if another process uses it by now


def _description(running: cluster.Cluster, options: settings.Settings, folder: Path | None) -> dict[str, Any]:
    where = running.paths
    home = where.kubeconfigs if folder is None else folder.absolute()
    return {
        "ready": True,
        "kubeconfig": str(home / where.admin.name),
        "kubeconfigs": {
            file.name.removesuffix(".kubeconfig"): str(home / file.name)
            for file in sorted(where.kubeconfigs.iterdir())
        },
        "directory": str(where.directory),
        "logs": str(where.logs),
        "profile": options.profile,
        "fabric": {
            "name": cluster.FABRIC,
            "adapter": running.fabric["adapter"],
            "endpoint": running.fabric["endpoint"],
            "configuration": str(where.fabric_configuration),
            "journal": str(where.journal),
        },
        "nodes": {name: _node(where.node(name)) for name in options.nodes},
        "driver": attachments.DRIVER if options.daemons else None,
        "doubles": running.answers,
        "pids": running.pids,
    }


def _node(node: paths.NodePaths) -> dict[str, str]:
    return {
        "kubelet": str(node.kubelet),
        "registry": str(node.registration.parent),
        "plugins": str(node.kubelet / "plugins"),
        "cdi": str(node.cdi),
        "sysfs": str(node.sysfs),
        "uevents": f"unix:{node.uevents}",
    }
