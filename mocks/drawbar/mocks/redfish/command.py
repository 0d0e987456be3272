"""`drawbar mock redfish`: the Redfish service as a separate process, on loopback."""

import argparse
import asyncio
import json
import ssl
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

import msgspec

from drawbar.mocks import errors
from drawbar.mocks.redfish import configuration, faults, quirks, service

_METHODS = frozenset({"GET", "POST", "PATCH", "DELETE"})
_DEFAULT = faults.Fault(kind=faults.FaultKind.LOST_REPLY)
_SHAPE = "KIND[:METHODS[:PATH[:TIMES[:AFTER]]]]"
_EPILOG = f"""\
an example configuration (everything except ids is optional):
  {{"hosts": [{{"id": "host-1"}}, {{"id": "host-2"}}],
   "enclosures": [{{"id": "chassis-1", "devices": [
     {{"id": "gpu-1", "kind": "gpu", "model": "A100", "vendor": "NVIDIA", "serial": "S1"}},
     {{"id": "memory-1", "kind": "cxl-memory", "memoryMib": 65536}}]}}],
   "method": "zones", "zones": "port", "username": "drawbar", "password": "secret",
   "actions": false, "expand": true, "events": true, "quirks": ["pages", "gzip"], "taskSeconds": 0.5,
   "constrained": false, "initiators": true}}
  method: zones, connections (only for devices of the kind cxl-memory) or composition;
  initiators: false emulates a memory appliance, whose connections are of memory chunks with its ports;
  namedConnections: true requires a name and the type CXL in these, as the manager of such appliances does;
  zones: one for each connection (pair) or for each host port (port);
  constrained: compositions request devices by count and model, and the service chooses its last free ones

faults are {_SHAPE}, such as lost-reply, busy:GET:/Systems:all, html:POST+PATCH:/Zones:2:1:
  KIND is one of {", ".join(faults.FaultKind)}; METHODS of HTTP with + between
  them ({"+".join(_DEFAULT.methods)}); PATH a part of the path ({_DEFAULT.path}); TIMES how many such requests, or all (1);
  AFTER how many pass before (0)

quirks are deviations of real servers, applied to each request; those of --quirk are added to those of the file:
{textwrap.fill(", ".join(sorted(quirks.QUIRKS)), width=100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument(
        "--config",
        type=Path,
        required=True,
        metavar="FILE",
        help="JSON file with hosts, enclosures and behaviour",
    )
    parser.add_argument("--port", type=int, default=0, help="TCP port on 127.0.0.1; 0 picks a free one")
    parser.add_argument(
        "--certificate", type=Path, metavar="FILE", help="PEM file of the certificate to serve HTTPS with"
    )
    parser.add_argument(
        "--key", type=Path, metavar="FILE", help="PEM file of the private key of --certificate"
    )
    parser.add_argument(
        "--journal",
        type=Path,
        metavar="FILE",
        help="file for the connections and disconnections, one JSON line each",
    )
    parser.add_argument(
        "--fault", action="append", default=[], metavar="FAULT", help="fault to inject, see below; repeatable"
    )
    parser.add_argument(
        "--quirk",
        action="append",
        default=[],
        metavar="NAME[,NAME...]",
        help="quirk of real servers, see below; repeatable",
    )


async def serve(args: argparse.Namespace) -> int:
    """Serve until cancelled.

    Raises:
        errors.UsageError: an option or a file cannot be used.
    """
    described = await asyncio.to_thread(_load, args.config, args.quirk)
    accidents = [parse_fault(text) for text in args.fault]
    tls = await asyncio.to_thread(_tls, args.certificate, args.key)
    if not 0 <= args.port <= 65535:
        raise errors.UsageError(f"--port {args.port}: give 0 to 65535")
    try:
        async with service.serving(described, port=args.port, tls=tls, journal=args.journal) as serving:
            for accident in accidents:
                serving.faults.add(accident)
            sys.stdout.write(json.dumps({"ready": True, "endpoint": serving.url}) + "\n")
            sys.stdout.flush()
            await asyncio.Event().wait()
    except OSError as error:
        raise errors.UsageError(
            f"--port {args.port} of 127.0.0.1 cannot be used ({error.strerror}); give another, or none"
        ) from error
    return 0


def parse_fault(text: str) -> faults.Fault:
    """Return the fault that the option describes.

    Raises:
        errors.UsageError: the text is no valid fault.
    """
    parts = text.split(":")
    kind, *rest = parts
    if kind not in set(faults.FaultKind) or len(rest) > 4:
        raise errors.UsageError(f'--fault "{text}": give {_SHAPE}, KIND one of {", ".join(faults.FaultKind)}')
    methods, path, times, after = (*rest, *[""] * (4 - len(rest)))
    listed = tuple(methods.upper().split("+")) if methods else _DEFAULT.methods
    if unknown := set(listed) - _METHODS:
        raise errors.UsageError(
            f'--fault "{text}": {min(unknown) or "an empty text"} is no method; '
            f"there are {', '.join(sorted(_METHODS))}"
        )
    for content in (times, after):
        if content and content != "all" and not (content.isascii() and content.isdigit()):
            raise errors.UsageError(f'--fault "{text}": "{content}" is not a whole number')
    if after == "all":
        raise errors.UsageError(f'--fault "{text}": after all requests nothing is left; give a number')
    return faults.Fault(
        kind=faults.FaultKind(kind),
        methods=listed,
        path=path or _DEFAULT.path,
        times=None if times == "all" else int(times or 1),
        after=int(after or 0),
    )


def _load(path: Path, named: Iterable[str]) -> configuration.Configuration:
    names = tuple(name.strip() for listed in named for name in listed.split(",") if name.strip())
    try:
        described = configuration.parse(path.read_bytes())
        quirks.choose(described.quirks, described)
    except OSError as error:
        raise errors.UsageError(f"--config {path} cannot be read ({error.strerror})") from error
    except (ValueError, msgspec.MsgspecError) as error:
        raise errors.UsageError(f"--config {path} describes no Redfish service: {error}") from error
    try:
        quirks.choose(names, described)
    except ValueError as error:
        raise errors.UsageError(f"--quirk {','.join(names)}: {error}") from error
    return msgspec.structs.replace(described, quirks=(*described.quirks, *names))


def _tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise errors.UsageError("--certificate and --key go together; give both, or none")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None) or error.strerror or "no PEM"
        raise errors.UsageError(
            f"--certificate {certificate} and --key {key} cannot be used ({reason}); give a certificate and its key as PEM"
        ) from error
    return context
