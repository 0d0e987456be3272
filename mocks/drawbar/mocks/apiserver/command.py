"""``drawbar mock apiserver``: run the API server double as a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
from pathlib import Path

from drawbar.mocks.apiserver import faultcontrol, profiles
from drawbar.mocks.apiserver.server import ApiServer, serving

_FREEZE_SECONDS = 0.5
_ROUNDS_BETWEEN_FULL_COLLECTIONS = 1_200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--port", type=int, default=0, help="TCP port on 127.0.0.1; 0 picks a free one")
    parser.add_argument(
        "--profile", choices=list(profiles.PROFILES), default="1.36", help="release to imitate"
    )
    parser.add_argument("--kubeconfig-dir", type=Path, required=True, help="folder for the kubeconfig files")
    parser.add_argument(
        "--service-account",
        action="append",
        default=[],
        metavar="NAMESPACE:NAME[:NODE]",
        help="also write a kubeconfig for this service account; repeatable",
    )
    parser.add_argument(
        "--plain-http", action="store_true", help="no TLS; kubectl then sends no token and is refused"
    )
    parser.add_argument(
        "--faults",
        type=Path,
        metavar="FILE",
        help="YAML or JSON file with faults that are in force from the start",
    )


async def serve(args: argparse.Namespace) -> int:
    """Run until cancelled; print one line of JSON once the server answers."""
    accounts = [account.split(":") for account in args.service_account]
    wrong = next((":".join(parts) for parts in accounts if len(parts) not in (2, 3) or not all(parts)), None)
    if wrong is not None:
        print(f"--service-account {wrong!r} must be NAMESPACE:NAME or NAMESPACE:NAME:NODE", file=sys.stderr)  # noqa: T201 - the command's own output
        return 2
    try:
        chosen = faultcontrol.load(args.faults) if args.faults is not None else []
        args.kubeconfig_dir.mkdir(parents=True, exist_ok=True)
        async with serving(profile=args.profile, port=args.port, tls=not args.plain_http) as server:
            for fault in chosen:
                server.faults.add(fault)
            admin = _write_kubeconfigs(server, args.kubeconfig_dir, accounts)
            ready = {"ready": True, "url": server.url, "kubeconfig": str(admin)}
            print(json.dumps(ready), flush=True)  # noqa: T201 - the ready line is the command's contract
            await keep_pauses_short()
    except faultcontrol.InvalidFaultsError as error:
        print(f"the API server cannot start: {error}", file=sys.stderr)  # noqa: T201 - the command's own output
        return 2
    except OSError as error:
        print(f"the API server cannot start: {error}; choose another port or folder", file=sys.stderr)  # noqa: T201 - the command's own output
        return 1
    return 0


def _write_kubeconfigs(server: ApiServer, folder: Path, accounts: list[list[str]]) -> Path:
    for namespace, name, *rest in accounts:
        node = rest[0] if rest else None
        path = folder / f"{'-'.join([name, *rest])}.kubeconfig"
        server.kubeconfig(path, f"{namespace}:{name}", node=node)
    return server.kubeconfig(folder / "admin.kubeconfig")


async def keep_pauses_short() -> None:
    """Keep full garbage collections of this process rare until cancelled, because they stop the server.

    Stored objects are plain values without cycles; reference counting frees them. But there are millions, and a full
    collection visits every one. With 20,000 objects it takes 0.2 to 0.4 s, without answers and events. So older
    objects are excluded from collections (``gc.freeze``). Dead cycles among them, from closed connections, wait for a
    full collection every ten minutes.
    """
    while True:
        gc.unfreeze()
        gc.collect()
        for _ in range(_ROUNDS_BETWEEN_FULL_COLLECTIONS):
            gc.collect(1)
            gc.freeze()
            await asyncio.sleep(_FREEZE_SECONDS)
