"""The webhook as a daemon: its certificate, its server, and nothing else. It never talks to the API server."""

import asyncio
import logging

from drawbar.driver.webhook import certificates, server, settings

log = logging.getLogger(__name__)


async def run(options: settings.Settings) -> None:
    """Runs until cancelled.

    Raises:
        errors.DrawbarError: something the configuration is to blame for.
    """
    settings.validate(options)
    held = certificates.Certificates(options.tls.certificate, options.tls.key)
    context = await held.load()
    async with (
        server.serving(options.driver, options.listen, context) as port,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(held.follow(), name="certificate")
        log.info("webhook is ready", extra={"driver": options.driver, "port": port})
        await asyncio.get_running_loop().create_future()
