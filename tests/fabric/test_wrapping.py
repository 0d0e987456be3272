"""Adapters before other adapters pass every call on."""

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
    async def _around(self, call):
        self.around.append(call)
        yield


@pytest.mark.parametrize("call", CALLS)
async def test_every_call_of_the_contract_goes_through_within_the_context_of_its_name(call):
    """What it did not define, the base class would answer in the adapter's place."""
    adapter = Recording()
    given = {name: name for name in inspect.signature(CALLS[call]).parameters if name != "self"}
    asked = getattr(adapter, call)(**given)
    if call == "watch":
        async with asked as events:
            answer = await anext(events)
    else:
        answer = await asked
    assert adapter.around == [call]
    # A call that ends the adapter has no answer.
    assert answer == (None if call == "close" else (call, *given))
