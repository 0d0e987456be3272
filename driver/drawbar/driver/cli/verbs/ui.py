"""`drawbar ui`: the fabrics, live in a browser."""

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from pathlib import Path

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
    flags.add_daemons(parser)
    flags.add_driver(parser)
    flags.add_cluster(parser)


def _port(content: str) -> int:
    if not (content.isascii() and content.isdecimal() and 0 <= int(content[:6]) <= PORT_MOST):
        raise argparse.ArgumentTypeError(f"{content!r} is not a port: give a number from 0 to {PORT_MOST}")
    return int(content)


def run(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C.

    Raises:
        DrawbarError: the cluster is not reached, or the port cannot be used.
    """
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # The page shows failures.
    try:
        with command.printing():
            return asyncio.run(_run(args))
    finally:
        logging.disable(before)


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
