"""`drawbar node`: the kubelet plugin of one node."""

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Iterator

from drawbar.driver import errors, logs, supervision
from drawbar.driver.cli import command
from drawbar.driver.configuration import display, flags, loader
from drawbar.driver.node import settings
from drawbar.driver.node.operation.http import address, check

log = logging.getLogger(__name__)


def _configure(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, settings.Settings)
    actions = parser.add_argument_group("instead of running")
    actions.add_argument(
        "--print-config", action="store_true", help="show each setting and where it comes from"
    )
    actions.add_argument("--json", action="store_true", help="show them as JSON")
    actions.add_argument(
        "--check",
        nargs="?",
        const="ready",
        choices=("ready", "alive"),
        help="ask the daemon that runs with these settings how it is (default: whether it is ready); for exec probes",
    )


def _run(args: argparse.Namespace) -> int:
    loaded = loader.load(settings.Settings, args, problems=settings.problems)
    if args.print_config:
        sys.stdout.write((display.as_json if args.json else display.as_yaml)(loaded.effective))
        loaded.checked()
        return 0
    if args.check:
        return _check(loaded.settings, args.check)
    return _serve(loaded)


@contextlib.contextmanager
def _without_system_certificates() -> Iterator[None]:
    """Keeps aiohttp from reading all certificate authorities of the system when it is imported.

    It makes a TLS context of its own then (2.6 MB), which the API server's client, with its own one, never uses.
    """
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR")
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.update(dict.fromkeys(names, os.devnull))
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]
        os.environ.update(before)


def _check(options: settings.Settings, what: str) -> int:
    # An address that is wrong, or no address at all, is said here; what else is wrong the daemon says.
    loader.refuse(address.problems(options.http))
    endpoint = address.parse(options.http.address, options.data_dir, options.instance)
    if endpoint is None:
        raise errors.UsageError(
            "--http-address is off, so nobody can be asked: leave --check out, or serve probes"
        )
    verdict = check.ask(endpoint, "/readyz" if what == "ready" else "/healthz")
    sys.stdout.write(f"{verdict.text}\n")
    return 0 if verdict.good else 1


def _serve(loaded: loader.Loaded[settings.Settings]) -> int:
    options = loaded.checked()
    # Imported here: gRPC and aiohttp are 60 MB that `drawbar --help` need not pay for.
    with _without_system_certificates():
        from drawbar.driver.node import daemon

    logs.configure(options.log.format, options.log.level)
    for name in loaded.ignored:
        log.warning("an environment variable looks like a setting and is none", extra={"variable": name})
    return supervision.run(daemon.run(options))


COMMAND = command.Command(
    name="node",
    help="the daemon of one node: hot-plug, kubelet plugin",
    description=(
        "The daemon of one node: hears of hot-plugged devices, reports them, and prepares them for containers.\n"
        "Every setting can stand in the file of --config (see --print-config for its keys), in the environment\n"
        "(the flag in capitals: DRAWBAR_KUBELET_DIR), or be a flag; flags win over the environment, and that over\n"
        "the file."
    ),
    configure=_configure,
    run=_run,
    examples=(
        "drawbar node --node-name worker-1 --kubeconfig ~/.kube/config",
        "drawbar node --config /etc/drawbar/node.yaml --log-format json",
        "drawbar node --config /etc/drawbar/node.yaml --print-config",
        "drawbar node --check alive",
    ),
)
