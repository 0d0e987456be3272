"""`drawbar webhook`: checks opaque parameters when they are written."""

import argparse
import logging
import sys

from drawbar.driver import logs, supervision
from drawbar.driver.cli import command
from drawbar.driver.cli import daemon as cli_daemon
from drawbar.driver.configuration import display, flags, loader
from drawbar.driver.webhook import settings

log = logging.getLogger(__name__)


def _configure(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, settings.Settings)
    actions = parser.add_argument_group("instead of running")
    actions.add_argument(
        "--print-config", action="store_true", help="show each setting and where it comes from"
    )
    actions.add_argument("--json", action="store_true", help="show them as JSON")


def _run(args: argparse.Namespace) -> int:
    loaded = loader.load(settings.Settings, args, problems=settings.problems)
    if args.print_config:
        sys.stdout.write((display.as_json if args.json else display.as_yaml)(loaded.effective))
        loaded.checked()
        return 0
    options = loaded.checked()
    with cli_daemon.without_system_certificates():
        from drawbar.driver.webhook import daemon
    logs.configure(options.log.format, options.log.level)
    for name in loaded.ignored:
        log.warning("an environment variable looks like a setting and is none", extra={"variable": name})
    return supervision.run(daemon.run(options))


COMMAND = command.Command(
    name="webhook",
    help="the admission webhook: checks opaque parameters",
    description=(
        "Answers the API server over HTTPS whether the opaque parameters of a DeviceClass, ResourceClaim or\n"
        "ResourceClaimTemplate can be obeyed. It holds no rights in the cluster and talks to nobody. What it says\n"
        "early, the controller and the node daemon say again, so it may be left out."
    ),
    configure=_configure,
    run=_run,
    examples=(
        "drawbar webhook --tls-certificate tls.crt --tls-key tls.key",
        "drawbar webhook --listen-address 10.1.2.3 --listen-port 9443 --log-format json",
    ),
)
