"""A vendor's adapter that raises what no adapter may: it harms its own fabric, and no other."""

import asyncio
import contextlib
import logging
import signal

import pytest

from drawbar.driver.controller import daemon, settings
from drawbar.driver.controller.fabrics import redacting_adapter
from drawbar.driver.kube import kinds
from drawbar.fabric import contract, errors, registry, wrapping

TOKEN = "s3cret-t0ken"
CREDENTIALS = contract.Credentials(token=TOKEN)
CALLS = {
    "capabilities": {},
    "hosts": {},
    "devices": {},
    "attach": {"request": None},
    "detach": {"request": None},
    "operation": {"request_id": "r"},
    "operations": {},
    "cancel": {"operation_id": "o"},
    "close": {},
}


class Raising:
    """Answers every call with one exception."""

    def __init__(self, error):
        self._error = error

    def __getattr__(self, name):
        async def call(*args, **kwargs):
            raise self._error

        return call

    @contextlib.asynccontextmanager
    async def watch(self, version):
        yield self._events()

    async def _events(self):
        raise self._error
        yield


async def answer_of(call, error):
    """Return the exception that the caller gets when the adapter raises this error."""
    discreet = redacting_adapter.RedactingAdapter(Raising(error), CREDENTIALS, fabric="f", name="acme")
    asked = first_event(discreet) if call == "watch" else getattr(discreet, call)(**CALLS[call])
    with pytest.raises(BaseException) as caught:  # noqa: PT011 -- which one is what the tests ask
        await asked
    return caught.value


async def first_event(adapter):
    async with adapter.watch("1") as events:
        return await anext(events)


@pytest.mark.parametrize("call", [*CALLS, "watch"])
async def test_a_defect_becomes_an_error_of_the_set_that_names_the_adapter_and_no_secret(call, caplog):
    caplog.set_level(logging.DEBUG)
    error = await answer_of(call, ValueError(f"cannot use {TOKEN}"))
    assert isinstance(error, errors.Unavailable)
    assert error.side_effects_unknown
    assert error.message == "the adapter acme failed with ValueError; tell its vendor"
    # Whoever logs it with all that led to it shows no secret either.
    assert error.__cause__ is None
    assert error.__suppress_context__
    (traceback,) = [record.traceback for record in caplog.records if hasattr(record, "traceback")]
    assert "ValueError: cannot use" in traceback
    assert all(TOKEN not in str(vars(record)) for record in caplog.records)


@pytest.mark.parametrize("call", [*CALLS, "watch"])
@pytest.mark.parametrize(
    "error",
    [
        errors.NotFound("no such operation"),
        errors.Unavailable("no answer"),
        asyncio.CancelledError(),
        errors.InvalidConfiguration(["wrong"]),
        SystemExit(signal.SIGTERM),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_contract_errors_and_cancellations_pass_unchanged(call, error):
    assert await answer_of(call, error) is error


def adapter_over(fabric, broken):
    """Return an adapter's class over a simulated fabric; calls in `broken` fail, and are counted there."""

    class Adapter(wrapping.WrappingAdapter):
        @classmethod
        def validate(cls, config):
            """Accept any configuration."""

        @classmethod
        async def connect(cls, config):
            return cls(fabric)

        @contextlib.asynccontextmanager
        async def _guard(self, call):
            if call in broken:
                broken[call] += 1
                raise ValueError(f"the vendor did not think of this {call}")
            yield

        async def close(self):
            """Leave the fabric open: it outlives its callers."""

    return Adapter


def start(cluster, find):
    """Start a controller for which `find()` returns the adapter acme; return its task."""
    options = settings.Settings(
        http=settings.Http(address="off"), kubeconfig=str(cluster.path / "controller"), leader_election=False
    )
    around = daemon.Surroundings(
        adapters=lambda name: find() if name == "acme" else registry.adapter_class(name)
    )
    cluster.controllers.append(asyncio.Task(daemon.run(options, around)))
    return cluster.controllers[-1]


@pytest.mark.parametrize("also", [(), ("operation", "devices")])
async def test_an_attach_that_fails_by_a_defect_is_failed_in_time_and_the_other_fabric_attaches(
    controller_world, until, also
):
    async with controller_world() as cluster:
        broken = {}
        running = start(cluster, lambda: adapter_over(cluster.fabric, broken))
        await cluster.make_fabric()
        await cluster.make_fabric("bad", adapter="acme", endpoint="here")

        async def pools():
            return {spec["pool"]["name"] for spec in await cluster.slices()}

        await until(pools, lambda value: {"fab/enc-1", "bad/enc-1"} <= value)
        broken.update(dict.fromkeys(("attach", *also), 0))
        await cluster.allocate("disk-0", name="c1", pool="bad/enc-1")

        async def count_tries():
            # Once it is not known what an attach did, that is asked for before another.
            return min(broken.values()) if "devices" not in broken else broken["operation"]

        await until(count_tries, lambda value: value >= 1)
        await cluster.allocate("gpu-0", name="c2")
        await cluster.wait_until_attached("gpu-0", "c2")
        short = {"spec": {"policy": {"attachTimeoutSeconds": 1}}}
        await cluster.patch(kinds.FABRIC, "bad", short)
        reported = await cluster.wait_until_failed("disk-0", "c1")
        assert reported["disk-0"]["attach-failed"] == "FabricUnreachable"
        assert not running.done()


async def test_a_detach_that_fails_by_a_defect_is_tried_until_it_works(controller_world, until):
    async with controller_world() as cluster:
        broken = {"detach": 0}
        running = start(cluster, lambda: adapter_over(cluster.fabric, broken))
        await cluster.make_fabric(adapter="acme", endpoint="here")
        await cluster.wait_for_slices()
        await cluster.allocate("gpu-0")
        await cluster.wait_until_attached("gpu-0")
        await cluster.deallocate()
        await until(
            cluster.attachments, lambda value: value["fab.gpu-0"]["metadata"].get("deletionTimestamp")
        )
        await cluster.node_says("fab.gpu-0", "Released")

        async def count_tries():
            return broken["detach"]

        await until(count_tries, lambda value: value >= 2)
        assert not running.done()
        broken.clear()
        await until(cluster.attachments, lambda value: "fab.gpu-0" not in value)


@pytest.mark.parametrize("where", ["loading", "validate"])
async def test_an_adapter_failing_before_it_connects_does_not_stop_another_fabric(
    controller_world, where, caplog
):
    def fails(*_):
        raise ImportError("no module of the vendor's")

    async with controller_world() as cluster:
        broken = adapter_over(cluster.fabric, {})
        broken.validate = fails
        start(cluster, fails if where == "loading" else lambda: broken)
        await cluster.make_fabric()
        await cluster.make_fabric("bad", adapter="acme", endpoint="here")
        condition = await cluster.condition("Connected", "bad", status="False")
        assert (condition["reason"], "ImportError" in condition["message"]) == ("AdapterDefect", True)
        await cluster.wait_for_slices()
        await cluster.allocate("gpu-0")
        await cluster.wait_until_attached("gpu-0")
    assert "no module of the vendor's" in "".join(
        getattr(record, "traceback", "") for record in caplog.records
    )
