"""`drawbar ui`: the fabrics, live in a browser."""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path

import msgspec

from drawbar.driver import errors
from drawbar.driver.cli import command, flags, shell

PORT_MOST = 65535


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--port",
        type=_port,
        default=0,
        metavar="PORT",
        help="port of 127.0.0.1 for the page (default: any free port)",
    )
    parser.add_argument(
        "--no-open", action="store_true", help="print the URL, and do not open it in a browser"
    )
    parser.add_argument(
        "--listen",
        type=_address,
        metavar="HOST:PORT",
        help="in a pod: serve all readers over TLS, each with the rights of their login token, such as :8443",
    )
    for name in ("certificate", "key"):
        parser.add_argument(
            f"--tls-{name}",
            type=Path,
            metavar="FILE",
            help=f"PEM file with the {name} for --listen (default: self-signed)",
        )
    flags.add_daemons(parser)
    flags.add_driver(parser)
    flags.add_cluster(parser)


def _address(content: str) -> str:
    _port(content.rpartition(":")[2])
    return content


def _port(content: str) -> int:
    if not (content.isascii() and content.isdecimal() and 0 <= int(content[:6]) <= PORT_MOST):
        raise argparse.ArgumentTypeError(f"{content!r} is not a port: give a number from 0 to {PORT_MOST}")
    return int(content)


def run(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C.

    Raises:
        DrawbarError: the cluster is not reached, or the port cannot be used.
    """
    if args.listen is not None:
        return _host(args)
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # The page shows failures.
    try:
        with command.printing():
            return asyncio.run(_run(args))
    finally:
        logging.disable(before)


def _host(args: argparse.Namespace) -> int:
    """Serve all readers until a signal; each page has its reader's rights, and this process has none."""
    from drawbar.driver import logs
    from drawbar.driver.cli.ui import hosting
    from drawbar.driver.controller import settings
    from drawbar.driver.kube import config, sessions

    if (args.tls_certificate is None) != (args.tls_key is None):
        raise errors.UsageError("--tls-certificate and --tls-key belong together: give both or none")
    own = config.anonymous(config.SERVICE_ACCOUNT, os.environ)

    def connect(token: str) -> sessions.Connection:
        return msgspec.structs.replace(
            own, authorization=lambda: f"Bearer {token}", origin="a reader's token"
        )

    async def serve() -> None:
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await hosting.run(
                connect,
                listen=args.listen,
                certificate=args.tls_certificate,
                key=args.tls_key,
                driver=shell.driver(args),
                namespace=args.daemons or settings.NAMESPACE,
                cluster_name=args.context or "",
            )

    logs.configure(logs.Format.JSON)
    asyncio.run(serve())
    return 0


async def _run(args: argparse.Namespace) -> int:
    from drawbar.driver.cli.ui import explaining, following, server
    from drawbar.driver.controller import settings

    driver = shell.driver(args)
    with server.listening(args.port) as bound:
        async with shell.connecting(args) as session:
            api = session.api
            explainer = explaining.Explainer(api, driver=driver, namespace=args.daemons or settings.NAMESPACE)
            async with (
                following.following(
                    api, driver=driver, cluster_name=args.context or _context_name(args.kubeconfig)
                ) as latest,
                server.serving(latest, bound, explainer.explain) as url,
            ):
                sys.stdout.write(f"{url}\n")
                sys.stdout.flush()
                is_opened = not args.no_open and _open(url)
                sys.stderr.write(f"{OPENED if is_opened else UNOPENED}; Ctrl-C ends it\n")
                await asyncio.get_running_loop().create_future()
    return 0


OPENED = "the page is open in your browser"
UNOPENED = "open the page in a browser of this machine"


def _open(url: str) -> bool:
    """Start to open the URL in the user's browser; return False without a browser, or over SSH."""
    import threading
    import webbrowser

    if os.environ.get("SSH_CONNECTION"):
        return False
    has_display = sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("BROWSER")
    )
    # A browser in the terminal would cover the URL.
    if not has_display:
        return False
    # A program from BROWSER may run as long as its window is open.
    threading.Thread(target=webbrowser.open, args=(url,), name="browser", daemon=True).start()
    return True


def _context_name(path: str | None) -> str:
    """Return the kubeconfig's current context; empty if it cannot be read."""
    import yaml

    for name in [path] if path else os.environ.get("KUBECONFIG", "~/.kube/config").split(os.pathsep):
        with contextlib.suppress(OSError, ValueError, yaml.YAMLError, AttributeError, RuntimeError):
            content = yaml.safe_load(Path(name).expanduser().read_text(encoding="utf-8"))
            if current := content.get("current-context"):
                return str(current)
    return ""


EXAMPLES = ("drawbar ui", "drawbar ui --port 8765 --no-open", "kubectl drawbar ui")
COMMAND = command.Command(
    name="ui",
    help="a live, read-only map of fabrics, devices, attachments and pending claims, in your browser",
    description=(
        "Serves a page on 127.0.0.1 with your own rights, opens it in your browser, and follows the cluster until Ctrl-C.\n"
        "The URL has a random token. Keep it secret: with it, every user of this machine can see the page.\n"
        "exit status: 1 the port cannot be used; 2 the command line is wrong; 3 the cluster is not reached; 130 interrupted."
    ),
    examples=EXAMPLES,
    configure=configure,
    run=run,
)
