"""`drawbar doctor --node`: reads the node daemon's settings as the daemon does, and looks at this node with them."""

import argparse
import asyncio
from pathlib import Path

from drawbar.driver import errors
from drawbar.driver.cli.doctor import findings, node_observation
from drawbar.driver.cli.doctor.plans import host as host_plan
from drawbar.driver.configuration import loader
from drawbar.driver.node import settings


def run(args: argparse.Namespace) -> tuple[tuple[findings.Finding, ...], dict[str, str]]:
    """All findings on this node, and what was looked at.

    Raises:
        errors.UsageError: the daemon's configuration cannot be read at all, or an option has no place here.
    """
    for option, value in (
        ("--namespace", args.namespace),
        ("--controller-account", args.controller_account),
        ("--node-account", args.node_account),
    ):
        if value is not None:
            raise errors.UsageError(f"{option} and --node do not go together: leave one out")
    chosen = argparse.Namespace(config=args.config, driverName=args.driver_name)
    loaded = loader.load(settings.Settings, chosen, problems=settings.problems)
    options = loaded.settings
    root = Path(args.host_root) if args.host_root is not None else None
    seen = asyncio.run(
        node_observation.observe(options, loaded.problems, kubeconfig=args.kubeconfig, root=root)
    )
    return host_plan.plan(seen), {"node": options.node_name, "driver": options.driver}
