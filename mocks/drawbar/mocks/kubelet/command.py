"""`drawbar mock kubelet`: kubelet doubles for one or more nodes in one process."""

import argparse
import asyncio
import json
from pathlib import Path

from drawbar.mocks import errors
from drawbar.mocks.kube import connections
from drawbar.mocks.kubelet import node, server, settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    times = settings.Settings()
    parser.add_argument("--kubeconfig", metavar="FILE", help="the file for access to the API server")
    parser.add_argument(
        "--node",
        metavar="NAME=DIR",
        action="append",
        required=True,
        help="a node and its folder (plugins_registry/, plugins/, cdi/, pods/); repeat the option for several",
    )
    parser.add_argument(
        "--release",
        choices=sorted(settings.SERVICES_BY_RELEASE),
        default=times.release,
        help="the Kubernetes release to imitate (default: %(default)s)",
    )
    parser.add_argument(
        "--check-device-nodes",
        action="store_true",
        help="refuse CDI device nodes missing from this host, as a container runtime does",
    )
    parser.add_argument(
        "--time",
        metavar="NAME=SECONDS",
        action="append",
        default=[],
        help=f"replace one of the real kubelet's times; repeat the option for several: {', '.join(settings.times())}",
    )


async def serve(args: argparse.Namespace) -> int:
    """Run until cancelled; print one line of JSON once all nodes are Ready.

    Raises:
        errors.UsageError: a node or time is not NAME=VALUE, a node is repeated, or there is no such time.
    """
    pairs = [_pair(text, "--node") for text in args.node]
    if len(dict(pairs)) < len(pairs):
        raise errors.UsageError("a node is given twice with --node: give each name once")
    nodes = [node.NodeSpec(name=name, directory=Path(folder)) for name, folder in pairs]
    times = settings.Settings(release=args.release, check_device_nodes=args.check_device_nodes)
    for text in args.time:
        times = _with_time(times, text)
    async with server.serving(connections.load(args.kubeconfig), nodes, times):
        print(json.dumps({"ready": True, "nodes": [name for name, _ in pairs]}), flush=True)  # noqa: T201 - the ready line
        await asyncio.get_running_loop().create_future()
    return 0


def _with_time(times: settings.Settings, text: str) -> settings.Settings:
    name, value = _pair(text, "--time")
    try:
        return times.with_time(name, float(value))
    except ValueError as error:
        raise errors.UsageError(f"--time {text}: {error}") from error


def _pair(text: str, option: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise errors.UsageError(f"{option} {text!r} is not NAME=VALUE: write it as {option} name=value")
    return name, value
