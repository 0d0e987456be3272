"""The suite's fixtures: a target for the whole run, a world for each test."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from contract import api, capabilities, kinds, negotiation, targets
from contract import lab as labs
from contract import world as worlds
from drawbar.driver.kube import client, config

SWEPT = (
    "validatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "deviceclasses",
    "resourceclasses",
    "resourceslices",
    "devicetaintrules",
    "nodes",
    "customresourcedefinitions",
    "clusterrolebindings",
    "clusterroles",
    "namespaces",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A target with our namespace in it."""

    target: targets.Target
    can: capabilities.Capabilities


@asynccontextmanager
async def connecting(kubeconfig: str) -> AsyncIterator[api.Client]:
    connection = await asyncio.to_thread(config.load, kubeconfig)
    async with client.sessions(connection, 0) as (session,):
        yield api.Client(connection=connection, session=session)


def pytest_report_header() -> str:
    return f"contract targets: {', '.join(targets.names())}"


@pytest.fixture(scope="session", params=targets.names())
def prepared(request, tmp_path_factory) -> Iterator[Prepared]:
    """The target of this run, or of this round of it."""
    if request.param == targets.CLUSTER:
        yield from _prepared(targets.cluster())
        return
    with targets.doubles(request.param, tmp_path_factory.mktemp("doubles")) as target:
        yield from _prepared(target)


@pytest.fixture(scope="module")
def impatient(prepared, tmp_path_factory) -> Iterator[Prepared]:
    """The same release with a scheduler that waits 2 s for binding conditions; no cluster lets us choose that."""
    if not prepared.target.double:
        pytest.skip(
            "needs a scheduler with a binding timeout of seconds; a cluster's is 10 minutes by default"
        )
    if not prepared.can.serves("resourceslices"):
        pytest.skip(f"{prepared.can.version} has no devices with binding conditions")
    folder = tmp_path_factory.mktemp("impatient")
    with targets.doubles(prepared.target.name, folder, "--binding-timeout-seconds", "2") as target:
        yield from _prepared(target)


def _prepared(target: targets.Target) -> Iterator[Prepared]:
    try:
        yield Prepared(target=target, can=asyncio.run(_prepare(target)))
    finally:
        asyncio.run(_sweep(target))


async def _prepare(target: targets.Target) -> capabilities.Capabilities:
    async with connecting(target.kubeconfig) as client:
        can = await capabilities.detect(client, target.run)
        world = worlds.World(client, run=target.run, can=can, accounts={})
        await world.make("namespaces", target.run)
        for account in ("pods", "alice", "bob"):
            await world.make("serviceaccounts", account)
        return can


async def _sweep(target: targets.Target) -> None:
    """Takes away whatever carries our label, in case a test could not, and the namespace last."""
    async with connecting(target.kubeconfig) as client:
        for collection in _swept():
            held = await client.get(collection, labelSelector=f"{worlds.RUN_LABEL}={target.run}")
            for name in held.names if held.code == 200 else ():
                await worlds.discard(client, f"{collection}/{name}")
        if not target.double:
            await client.until("/api/v1/namespaces", target.run, lambda namespace: namespace is None)


def _swept() -> Iterator[str]:
    """The collections in which objects of ours can be, whichever release it is."""
    rules = (kinds.with_rules(version) for version in capabilities.RULES)
    everywhere = (*rules, kinds.classic("v1alpha3"), kinds.classic("v1alpha2"))
    for plural in SWEPT:
        prefixes = [served[plural].prefix for served in everywhere if plural in served]
        yield from (f"{prefix}/{plural}" for prefix in dict.fromkeys(prefixes))


@pytest.fixture
async def world(prepared) -> AsyncIterator[worlds.World]:
    """This test's corner of the target."""
    async with _corner(prepared) as corner:
        yield corner


@pytest.fixture
async def classic(prepared) -> AsyncIterator[worlds.World]:
    """This test's corner of a target in which a driver's controller allocates claims."""
    if not prepared.can.classic:
        pytest.skip(f"{prepared.can.version} has no PodSchedulingContexts")
    async with _corner(prepared, kinds.classic(prepared.can.classic)) as corner:
        yield corner


@pytest.fixture
async def driver(classic) -> negotiation.Driver:
    """A resource driver with a controller, and its class."""
    return await negotiation.made(classic)


@pytest.fixture
async def hasty(impatient) -> AsyncIterator[worlds.World]:
    """A corner of the target whose scheduler does not wait."""
    async with _corner(impatient) as corner:
        yield corner


@pytest.fixture
async def lab(world) -> labs.Lab:
    """A fake node, a class of devices and what it takes to schedule pods."""
    return await labs.made(world)


@pytest.fixture
async def hasty_lab(hasty) -> labs.Lab:
    """The same with a scheduler that does not wait."""
    return await labs.made(hasty)


@asynccontextmanager
async def _corner(
    prepared: Prepared, served: Mapping[str, kinds.Kind] | None = None
) -> AsyncIterator[worlds.World]:
    target = prepared.target
    async with connecting(target.kubeconfig) as client:
        corner = worlds.World(
            client,
            run=target.run,
            can=prepared.can,
            accounts=target.accounts,
            poll_seconds=target.poll_seconds,
            served=kinds.with_rules(prepared.can.rules) if served is None else served,
        )
        try:
            yield corner
        finally:
            await corner.clean()
