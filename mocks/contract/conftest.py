"""The suite's fixtures: a target for the whole run, a world for each test."""

import asyncio
import functools
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import pytest

from contract import api, capabilities, features, kinds, negotiation, targets
from contract import lab as labs
from contract import world as worlds
from drawbar.mocks.kube import client, connections, errors

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


@functools.lru_cache(maxsize=8)
def _load(kubeconfig: str) -> connections.Connection:
    """Return the connection of a file, which each test needs."""
    return connections.load(kubeconfig)


@asynccontextmanager
async def connecting(kubeconfig: str) -> AsyncIterator[api.Client]:
    connection = await asyncio.to_thread(_load, kubeconfig)
    async with client.session(connection) as session:
        yield api.Client(connection=connection, session=session)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "needs(*features): run only on targets with these features; see contract/features.py"
    )


def pytest_report_header() -> str:
    return f"contract targets: {', '.join(targets.names())}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect each test on the targets that lack one of its needs."""
    known: dict[str, features.Features] = {}
    selected, deselected = [], []
    for item in items:
        target = _target_of(item)
        if target is None:
            selected.append(item)
            continue
        if target not in known:
            known[target] = _features_of(target)
        try:
            missing = known[target].find_missing(_needs_of(item))
        except ValueError as error:
            raise pytest.UsageError(f"{item.nodeid}: {error}") from error
        (deselected if missing else selected).append(item)
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = selected


def _target_of(item: pytest.Item) -> str | None:
    call = getattr(item, "callspec", None)
    target = call.params.get("target_run") if call is not None else None
    return target if isinstance(target, str) else None


def _needs_of(item: pytest.Item) -> list[str]:
    marked = [need for mark in item.iter_markers("needs") for need in mark.args]
    modules = (__name__, item.module.__name__)
    return marked + features.of_fixtures(modules, item.fixturenames)


def _features_of(target: str) -> features.Features:
    if target != targets.CLUSTER:
        return features.of_profile(target)
    cluster = targets.cluster()
    try:
        can = asyncio.run(_ask(cluster))
    except (OSError, aiohttp.ClientError, errors.ConfigError) as error:
        raise pytest.UsageError(
            f"the cluster cannot be asked for its features: {error}; check it with: "
            f"kubectl --kubeconfig {cluster.kubeconfig} version"
        ) from error
    return features.of_server(can, double=False)


async def _ask(target: targets.Target) -> capabilities.Capabilities:
    async with connecting(target.kubeconfig) as client:
        return await capabilities.detect(client, target.run)


@pytest.fixture(scope="session", params=targets.names())
def target_run(request, tmp_path_factory) -> Iterator[Prepared]:
    """Return the target of this run, or of this round of it."""
    if request.param == targets.CLUSTER:
        yield from _prepare_and_sweep(targets.cluster())
        return
    with targets.doubles(request.param, tmp_path_factory.mktemp("doubles")) as target:
        yield from _prepare_and_sweep(target)


@pytest.fixture(scope="module")
@features.declare_needs("double", "v1")
def impatient(target_run, tmp_path_factory) -> Iterator[Prepared]:
    """Return the same release with a scheduler that waits 2 s for binding conditions; a cluster's waits 10 minutes by default."""
    folder = tmp_path_factory.mktemp("impatient")
    with targets.doubles(target_run.target.name, folder, "--binding-timeout-seconds", "2") as target:
        yield from _prepare_and_sweep(target)


def _prepare_and_sweep(target: targets.Target) -> Iterator[Prepared]:
    try:
        yield Prepared(target=target, can=asyncio.run(_prepare(target)))
    finally:
        asyncio.run(_sweep(target))


async def _prepare(target: targets.Target) -> capabilities.Capabilities:
    async with connecting(target.kubeconfig) as client:
        can = await capabilities.detect(client, target.run)
        if target.double:
            asked, promised = features.of_server(can, double=True), features.of_profile(target.name)
            assert asked == promised, f"the double of {target.name} has other features than its profile"
        world = worlds.Corner(client, run=target.run, can=can, accounts={})
        await world.make("namespaces", target.run)
        for account in ("pods", "alice", "bob"):
            await world.make("serviceaccounts", account)
        return can


async def _sweep(target: targets.Target) -> None:
    """Delete everything with our label that a test left, and the namespace last."""
    async with connecting(target.kubeconfig) as client:
        for collection in _swept():
            held = await client.get(collection, labelSelector=f"{worlds.RUN_LABEL}={target.run}")
            for name in held.names if held.code == 200 else ():
                await worlds.discard(client, f"{collection}/{name}")
        if not target.double:
            await client.until("/api/v1/namespaces", target.run, lambda namespace: namespace is None)


def _swept() -> Iterator[str]:
    """Return the collections with possible objects of ours, for any release."""
    rules = (kinds.with_rules(version) for version in capabilities.RULES)
    everywhere = (*rules, kinds.classic("v1alpha3"), kinds.classic("v1alpha2"))
    for plural in SWEPT:
        prefixes = [served[plural].prefix for served in everywhere if plural in served]
        yield from (f"{prefix}/{plural}" for prefix in dict.fromkeys(prefixes))


@pytest.fixture
async def world(target_run) -> AsyncIterator[worlds.Corner]:
    """Return this test's corner of the target."""
    async with _corner(target_run) as corner:
        yield corner


@pytest.fixture
@features.declare_needs("classic")
async def classic(target_run) -> AsyncIterator[worlds.Corner]:
    """Return this test's corner of a target in which a driver's controller allocates claims."""
    async with _corner(target_run, kinds.classic(target_run.can.classic)) as corner:
        yield corner


@pytest.fixture
async def driver(classic) -> negotiation.Driver:
    """Return a resource driver with a controller, and its class."""
    return await negotiation.make_driver(classic)


@pytest.fixture
async def hasty(impatient) -> AsyncIterator[worlds.Corner]:
    """Return a corner of the target whose scheduler does not wait."""
    async with _corner(impatient) as corner:
        yield corner


@pytest.fixture
@features.declare_needs("v1")
async def lab(world) -> labs.Lab:
    """Return a fake node, a class of devices and a scheduler for pods."""
    return await labs.make_lab(world)


@pytest.fixture
async def hasty_lab(hasty) -> labs.Lab:
    """Return the same with a scheduler that does not wait."""
    return await labs.make_lab(hasty)


@asynccontextmanager
async def _corner(
    target_run: Prepared, served: Mapping[str, kinds.Kind] | None = None
) -> AsyncIterator[worlds.Corner]:
    target = target_run.target
    async with connecting(target.kubeconfig) as client:
        corner = worlds.Corner(
            client,
            run=target.run,
            can=target_run.can,
            accounts=target.accounts,
            poll_seconds=target.poll_seconds,
            served=kinds.with_rules(target_run.can.rules) if served is None else served,
        )
        try:
            yield corner
        finally:
            await corner.clean()
