"""The checks at the start: looks at the host, says what is missing, and ends if it is too much."""

import asyncio
import logging

from drawbar.driver.node import errors, settings, uevents
from drawbar.driver.node.operation import host, prerequisites

log = logging.getLogger(__name__)


async def check(options: settings.Settings) -> None:
    """Warns of what will not work.

    Raises:
        errors.Unprivileged: the daemon would be of no use; the message lists all that is missing.
    """
    directories = (options.kubelet_dir / "plugins_registry", options.data_dir, options.cdi_dir)
    facts = await asyncio.to_thread(host.facts, directories, options.sysfs)
    findings = prerequisites.judged(
        facts, on_host=options.uevents == uevents.KERNEL, in_pod=bool(options.instance)
    )
    if findings.fatal:
        raise errors.Unprivileged(prerequisites.sentence(findings))
    for warning in findings.warnings:
        log.warning(warning)
