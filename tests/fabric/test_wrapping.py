"""Adapters before other adapters pass every call on."""

import asyncio
import contextlib
import inspect

import pytest

from drawbar.fabric import contract, wrapping

CALLS = {
    name: member
    for name, member in inspect.getmembers(contract.FabricAdapter)
    # The others are of the class that is installed, before anything is connected.
    if not name.startswith("_") and name not in ("connect", "parameters_schema", "validate")
}


class Inner:
    """Answers each call with its name, and with what it was given."""

    def __getattr__(self, name):
        async def call(*args, **kwargs):
            return (name, *args, *kwargs.values())

        return call

    @contextlib.asynccontextmanager
    async def watch(self, from_version):
        async def events():
            yield ("watch", from_version)

        yield events()


class Recording(wrapping.WrappingAdapter):
    """Records the calls that it was around."""

    def __init__(self):
        super().__init__(Inner())
        self.around = []

    @contextlib.asynccontextmanager
    async def _guard(self, call):
        self.around.append(call)
        yield


@pytest.mark.parametrize("call", CALLS)
async def test_every_call_of_the_contract_goes_through_within_the_context_of_its_name(call):
    """The base class would answer a call that the wrapper does not define."""
    adapter = Recording()
    arguments = {name: name for name in inspect.signature(CALLS[call]).parameters if name != "self"}
    asked = getattr(adapter, call)(**arguments)
    if call == "watch":
        async with asked as events:
            answer = await anext(events)
    else:
        answer = await asked
    assert adapter.around == [call]
    # A call that ends the adapter has no answer.
    assert answer == (None if call == "close" else (call, *arguments))


class Listed:
    """A fabric whose listings end when the test ends them; each answers with the devices of its beginning."""

    def __init__(self, *devices):
        self.devices_now = devices
        self.listings = []
        self._asked = asyncio.Event()

    async def wait_until_asked(self):
        """Wait until another listing is asked for."""
        await self._asked.wait()
        self._asked.clear()

    async def devices(self):
        shown, over = self.devices_now, asyncio.Event()
        self.listings.append(over)
        self._asked.set()
        await over.wait()
        return contract.Inventory(version=str(len(self.listings)), devices=shown)


class Keeping(wrapping.KeepingAdapter):
    """Shows the devices that it keeps."""

    @property
    def kept(self):
        return {device.id: device.model for device in self._devices.values()}

    async def read(self):
        return await self._read()

    def arrange(self):
        """Do nothing with the devices."""

    def report(self, device_id, device):
        self._put(device_id, device)


def device(name, model=""):
    return contract.Device(id=name, device_class="gpu", model=model, enclosure="e1")


@pytest.fixture
def fabric():
    return Listed(device("d1", "old"))


@pytest.fixture
async def begin():
    """Yield a function: `await begin(adapter, fabric)` begins a listing and returns its task.

    It returns once the fabric is asked."""
    async with asyncio.TaskGroup() as tasks:

        async def begin_listing(adapter, fabric):
            listing = tasks.create_task(adapter.read(), name="listing")
            await fabric.wait_until_asked()
            return listing

        yield begin_listing


async def test_the_end_of_one_listing_leaves_the_reports_of_another_alone(fabric, begin):
    """Two listings without reports are equal, but not identical."""
    adapter = Keeping(fabric)
    first, second = await begin(adapter, fabric), await begin(adapter, fabric)
    fabric.listings[1].set()
    await second
    adapter.report("d1", device("d1", "reported"))
    fabric.listings[0].set()
    await first
    assert adapter.kept == {"d1": "reported"}


async def test_a_report_reaches_the_listing_that_is_left_when_another_ends(fabric, begin):
    adapter = Keeping(fabric)
    first, second = await begin(adapter, fabric), await begin(adapter, fabric)
    fabric.listings[0].set()
    await first
    adapter.report("d1", device("d1", "reported"))
    fabric.listings[1].set()
    await second
    assert adapter.kept == {"d1": "reported"}


async def test_of_two_listings_the_one_that_began_last_stays(fabric, begin):
    """Without a watch, nothing would correct the older listing."""
    adapter = Keeping(fabric)
    first = await begin(adapter, fabric)
    fabric.devices_now = (device("d1", "new"),)
    second = await begin(adapter, fabric)
    fabric.listings[1].set()
    await second
    fabric.listings[0].set()
    await first
    assert adapter.kept == {"d1": "new"}


async def test_a_listing_that_fails_leaves_nothing_behind(fabric, begin):
    adapter = Keeping(fabric)
    first, second = await begin(adapter, fabric), await begin(adapter, fabric)
    first.cancel()
    await asyncio.wait({first})
    adapter.report("d2", device("d2", "reported"))
    fabric.listings[1].set()
    assert (await second).version == "2"
    assert adapter.kept == {"d1": "old", "d2": "reported"}
