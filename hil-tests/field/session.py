"""One run on real hardware: read the file, look, say what would be touched, ask, run the tests."""

import asyncio
import contextlib
import json
import os
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from lab import errors, sessions

from drawbar.fabric import contract, registry
from drawbar.fabric import errors as fabric_errors
from field import choice, configuration, node, preflight

SITE, LISTING = "DRAWBAR_HIL_SITE", "DRAWBAR_HIL_LISTING"
NOT_RUN = 2
QUESTION = "Type yes to go on: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What is known before anything is touched."""

    hosts: tuple[contract.Host, ...]
    inventory: contract.Inventory
    facts: str


def read(path: Path) -> configuration.Site:
    """Read the file.

    Raises:
        configuration.InvalidConfiguration: it cannot be read, or is at fault.
    """
    try:
        return configuration.parse(path.read_text())
    except OSError as error:
        raise configuration.InvalidConfiguration([f"{path} cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise configuration.InvalidConfiguration([f"{path} is not a text file"]) from error


@contextlib.asynccontextmanager
async def fabric(site: configuration.Site) -> AsyncIterator[contract.FabricAdapter]:
    """Connect to the site's fabric, and yield its adapter.

    Raises:
        configuration.InvalidConfiguration: the adapter finds fault with its part of the file.
        errors.Unavailable: the manager cannot be reached.
    """
    try:
        adapter = await registry.adapter_class(site.fabric.adapter).connect(_settings(site.fabric))
    except fabric_errors.InvalidConfiguration as error:
        raise configuration.InvalidConfiguration(
            [f"fabric: {problem}" for problem in error.problems]
        ) from error
    except fabric_errors.FabricError as error:
        raise errors.Unavailable(f"the fabric manager at {site.fabric.endpoint}: {error}") from error
    async with adapter:
        yield adapter


def _settings(about: configuration.Fabric) -> contract.AdapterConfig:
    credentials = contract.Credentials()
    if about.credentials_file:
        try:
            credentials = configuration.credentials(Path(about.credentials_file).read_text())
        except OSError as error:
            raise configuration.InvalidConfiguration(
                [f"the credentials file {about.credentials_file} cannot be read: {error.strerror}"]
            ) from error
    return contract.AdapterConfig(
        name="hil",
        endpoint=about.endpoint,
        parameters=about.parameters,
        timeout_seconds=about.timeout_seconds,
        credentials=credentials,
        tls=contract.Tls(verify=about.verify, server_name=about.server_name),
    )


async def look(site: configuration.Site, log: Path) -> Outlook:
    """Ask fabric and node, and change nothing.

    Raises:
        configuration.InvalidConfiguration: what they say speaks against the file.
        errors.Unavailable: one of them does not answer.
    """
    async with fabric(site) as adapter:
        try:
            capabilities, inventory, hosts = (
                await adapter.capabilities(),
                await adapter.devices(),
                await adapter.hosts(),
            )
        except fabric_errors.FabricError as error:
            raise errors.Unavailable(f"the fabric manager at {site.fabric.endpoint}: {error}") from error
    problems = preflight.judge(site, capabilities, hosts, inventory)
    if problems:
        raise configuration.InvalidConfiguration(problems)
    async with node.connecting(site.node, log) as reached:
        facts = await node.facts(reached, site.node)
    return Outlook(hosts=hosts, inventory=inventory, facts=facts)


async def run(path: Path, *, yes: bool) -> int:
    """Run the tests on real hardware; return pytest's status, or 2 where nothing was run.

    Args:
        path: the file, as an absolute path.
        yes: run without asking for agreement.
    """
    try:
        site = read(path)
        with tempfile.TemporaryDirectory(prefix="drawbar-hil-") as name:
            seen = await look(site, Path(name) / "node.log")
            tests = await _collect_tests(path, Path(name) / "tests.json")
    except configuration.InvalidConfiguration as error:
        sys.stderr.write("".join(f"error: {path}: {problem}\n" for problem in error.problems))
        return NOT_RUN
    except errors.LabError as error:
        sys.stderr.write(f"error: {error}\n")
        return NOT_RUN
    choices = choice.choose(tests, site)
    sys.stdout.write(preflight.describe(site, choices, seen.hosts, seen.inventory, seen.facts))
    sys.stdout.flush()
    if not any(not made.reason for made in choices):
        sys.stderr.write(f"error: {path}: no test applies to the listed devices\n")
        return NOT_RUN
    if not yes and not await asyncio.to_thread(_ask_for_consent):
        sys.stderr.write(
            "error: not confirmed with yes, so nothing was touched; HIL_YES=1 confirms it for machines\n"
        )
        return NOT_RUN
    # After a failure the devices may be anywhere, so nothing further is tried with them.
    return await sessions.pytest(["-x", "hil-tests", *_read_pytest_arguments()], {SITE: str(path)})


def _read_pytest_arguments() -> list[str]:
    """Return what the caller wants of pytest, such as `-k listed`."""
    return shlex.split(os.environ.get("HIL_ARGS", ""))


def _ask_for_consent() -> bool:
    sys.stdout.write(QUESTION)
    sys.stdout.flush()
    return sys.stdin.readline().strip() == "yes"


async def _collect_tests(path: Path, listing: Path) -> list[choice.Test]:
    """Return the tests, as pytest collects them."""
    environment = {LISTING: str(listing), SITE: str(path)}
    log = listing.with_suffix(".log")
    with log.open("wb") as output:
        status = await sessions.pytest(
            ["--collect-only", "hil-tests", *_read_pytest_arguments()], environment, output=output
        )
    if status != 0:
        reported = await asyncio.to_thread(log.read_text, errors="replace")
        raise errors.LabError(f"the tests cannot be collected: {reported[-2000:]}")
    return [choice.Test(**fields) for fields in json.loads(await asyncio.to_thread(listing.read_text))]
