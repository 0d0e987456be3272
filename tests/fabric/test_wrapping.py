"""Adapters before other adapters pass every call on."""

import inspect

from drawbar.fabric import contract, wrapping


def test_a_wrapping_adapter_passes_every_call_of_the_contract_on():
    """What it did not define, the base class would answer in the adapter's place."""
    every = {name for name, _ in inspect.getmembers(contract.FabricAdapter) if not name.startswith("_")}
    # Of the class that is installed, before anything is connected.
    every -= {"parameters_schema"}
    assert every <= vars(wrapping.WrappingAdapter).keys()
