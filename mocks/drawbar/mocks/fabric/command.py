"""`drawbar mock fabric`: the simulated fabric as a process of its own, behind a UNIX socket.

With `--tell`, the command is a client of a running fabric's control socket.
"""

import argparse
import asyncio
import json
import logging
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from drawbar.fabric import errors
from drawbar.fabric.grpc import certificates, endpoints, server
from drawbar.mocks import errors as mock_errors
from drawbar.mocks.fabric import commands, configuration, control, pool, records
from drawbar.mocks.fabric.simulation import SimulatedFabric

PLUGIN_NAME = "simulated.fabric.drawbar.dev"
ATTACH_SECONDS, DETACH_SECONDS = 2.0, 1.0
"""The times with --devices, long enough for people to see."""

_logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="hosts, enclosures, times and faults, as JSON"
    )
    parser.add_argument(
        "--devices",
        metavar="CLASS=N,...",
        help="instead of --config: the devices of two enclosures by class, such as gpu=4,nvme=2; an attach takes 2 s",
    )
    parser.add_argument(
        "--nodes",
        metavar="SELECTOR",
        help="add each node of a cluster with these labels as a host, such as drawbar.dev/simulation=true",
    )
    parser.add_argument(
        "--ports",
        type=int,
        default=configuration.PORTS_PER_HOST,
        metavar="N",
        help="the number of ports of each host of --nodes (default: %(default)s)",
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="the cluster of --nodes; the default is the pod's service account",
    )
    parser.add_argument(
        "--listen",
        metavar="ENDPOINT",
        help="the address: unix:/PATH of at most 107 bytes, or tls://127.0.0.1:PORT (0 for a free port) with the three files",
    )
    parser.add_argument(
        "--certificate",
        type=Path,
        metavar="FILE",
        help="the certificate of tls://, as PEM; read again for each connection",
    )
    parser.add_argument("--key", type=Path, metavar="FILE", help="the key of --certificate, as PEM")
    parser.add_argument(
        "--authority",
        type=Path,
        metavar="FILE",
        help="the authority of the callers' certificates, as PEM",
    )
    parser.add_argument(
        "--journal", type=Path, metavar="FILE", help="append a JSON line per operation start and finish"
    )
    parser.add_argument(
        "--state", type=Path, metavar="FILE", help="keep attachments and operations over a restart"
    )
    parser.add_argument(
        "--control", metavar="unix:/PATH", help="the control socket for commands, one JSON object a line"
    )
    parser.add_argument(
        "--tell",
        nargs="+",
        metavar="WORD",
        help="instead of serving, send one command to the fabric behind --control, print its answer and end",
    )
    lines = [f"  {commands.usage(kind):36} {(kind.__doc__ or '').strip()}" for kind in commands.COMMANDS]
    parser.epilog = "\n".join(("commands for --tell (objects as JSON, described as in --config):", *lines))


async def serve(args: argparse.Namespace) -> int:
    """Serve until SIGTERM, SIGINT or cancellation, and return 0; return 1 if it cannot start.

    With `--tell`, send a command.

    Raises:
        errors.UsageError: options are missing or contradict each other.
    """
    if args.tell:
        return await _tell(args)
    if (args.config is None) == (args.devices is None) or args.listen is None:
        raise mock_errors.UsageError(
            "a simulated fabric needs --listen and one of --config and --devices (or --control and --tell)"
        )
    files = _files(args)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    reasons: list[BaseException] = []
    try:
        await _serve_until(stop, args, files)
    except* (errors.FabricError, OSError) as group:
        # The fabric runs in a task group, so its errors arrive in a group.
        reasons = _leaves(group)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    for reason in reasons:
        _logger.error("the simulated fabric ends: %s", reason)
    return 1 if reasons else 0


def _files(args: argparse.Namespace) -> certificates.ServerFiles | None:
    files = (args.certificate, args.key, args.authority)
    is_network = endpoints.is_network(args.listen)
    if is_network and not endpoints.host_and_port(args.listen).startswith(
        ("127.0.0.1:", "[::1]:", "localhost:")
    ):
        raise mock_errors.UsageError(
            f"--listen {args.listen} is not an address of this machine alone; give tls://127.0.0.1:PORT"
        )
    if is_network != all(files) or is_network != any(files):
        raise mock_errors.UsageError(
            "--listen tls://HOST:PORT goes with --certificate, --key and --authority; give all, or unix:/PATH alone"
        )
    if not is_network:
        return None
    return certificates.ServerFiles(certificate=args.certificate, key=args.key, authority=args.authority)


async def _serve_until(
    stop: asyncio.Event, args: argparse.Namespace, files: certificates.ServerFiles | None
) -> None:
    described = await asyncio.to_thread(_load_configuration, args)
    async with AsyncExitStack() as stack:
        cluster = None
        if args.nodes is not None:
            # Imported late: only fabrics of a cluster need it.
            from drawbar.mocks.fabric import nodes

            cluster = await stack.enter_async_context(
                nodes.following(args.nodes, args.ports, args.kubeconfig)
            )
            # Added before the start, because the fabric drops a saved attachment whose host is unknown.
            described = msgspec.structs.replace(described, hosts=(*described.hosts, *cluster.hosts()))
            if args.state is not None and not args.state.exists():
                connections = await cluster.connections()
                records.StateFile(args.state).save(lambda: records.State(connections=connections))
        fabric = await stack.enter_async_context(
            SimulatedFabric.running(described, journal=args.journal, state=args.state)
        )
        if cluster is not None:
            cluster.keep(fabric.console)
        endpoint = await stack.enter_async_context(
            server.serving(
                fabric,
                args.listen,
                name=PLUGIN_NAME,
                version="1",  # the simulation has no versions of its own
                configure=fabric.configure,
                files=files,
            )
        )
        ready = {"ready": True, "endpoint": endpoint}
        if args.control is not None:
            await stack.enter_async_context(control.serving(fabric.console, args.control))
            ready["control"] = args.control
        sys.stdout.write(json.dumps(ready) + "\n")
        sys.stdout.flush()
        await stop.wait()


def _load_configuration(args: argparse.Namespace) -> configuration.Configuration:
    if args.config is not None:
        return configuration.load(args.config)
    try:
        amounts = pool.parse_amounts(args.devices)
    except ValueError as error:
        raise mock_errors.UsageError(f"--devices: {error}") from error
    return configuration.Configuration(
        enclosures=pool.make_enclosures(amounts), attach_seconds=ATTACH_SECONDS, detach_seconds=DETACH_SECONDS
    )


async def _tell(args: argparse.Namespace) -> int:
    if args.control is None:
        raise mock_errors.UsageError(
            "--tell needs --control, the socket of the fabric that receives the command"
        )
    try:
        answer = await control.tell(args.control, commands.from_words(args.tell))
    except errors.FabricError as error:
        raise mock_errors.UsageError(error.message) from error
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0 if answer["ok"] else 1


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Return the errors of a group and of its inner groups."""
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves
