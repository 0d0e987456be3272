"""The next step in letting go of a device, decided purely."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.node.treatment import plan

A, B = "0000:01:00.0", "0000:01:00.1"
PORT = "devices/pci0000:00/0000:00:03.0"
ON = plan.Slot(name="1", powered=True)
USER = ("held by pid 1 (x), /dev/y",)


def function(address=A, *, path=None, **more):
    return plan.Function(address=address, path=path or f"{PORT}/{address}", **more)


def seen(*functions, slot=ON, **more):
    return plan.Observed(functions=functions, slot=slot, **more)


BOUND = function(bound=True)
VIRTUAL = function("0000:01:00.4", bound=True, virtual=True)
CASES = [
    ("nothing is left", seen(slot=None), plan.Done()),
    ("a slot that is on", seen(), plan.PowerOff(slot="1")),
    ("a slot that is off", seen(slot=dataclasses.replace(ON, powered=False)), plan.Done()),
    ("a slot without a switch", seen(slot=dataclasses.replace(ON, powered=None)), plan.Done()),
    ("a slot that is empty", seen(slot=dataclasses.replace(ON, present=False)), plan.Done()),
    ("a slot that does not say", seen(slot=dataclasses.replace(ON, present=None)), plan.PowerOff(slot="1")),
    ("a slot with another card", seen(slot=dataclasses.replace(ON, taken=True)), plan.Done()),
    ("a user", seen(BOUND, used_by=USER), plan.Wait(message="held by pid 1 (x), /dev/y")),
    (
        "a user and virtual functions",
        seen(function(bound=True, vfs=2), used_by=USER),
        plan.Wait(message="held by pid 1 (x), /dev/y"),
    ),
    (
        "virtual functions",
        seen(function(bound=True, vfs=2), VIRTUAL, pending_quiesce_step="x"),
        plan.DropVirtualFunctions(address=A),
    ),
    (
        "unrest",
        seen(BOUND, pending_quiesce_step="region0 is there"),
        plan.Quiesce(pending="region0 is there"),
    ),
    ("data", seen(BOUND, data=A), plan.Erase()),
    ("data and no driver", seen(function(), data=A), plan.Bind(address=A)),
    ("data that need no driver", seen(function(), data=A, driverless=True), plan.Erase()),
    ("data and unrest", seen(BOUND, data=A, pending_quiesce_step="x"), plan.Quiesce(pending="x")),
    ("a driver", seen(BOUND), plan.Unbind(address=A)),
    ("two drivers", seen(BOUND, function(B, bound=True)), plan.Unbind(address=B)),
    ("one driver of two", seen(BOUND, function(B)), plan.Unbind(address=A)),
    ("no driver", seen(function()), plan.Remove(address=A)),
    ("a reset", seen(function(resets=True)), plan.Remove(address=A, reset=True)),
    ("a reset below a driver", seen(function(resets=True), function(B, bound=True)), plan.Unbind(address=B)),
    ("a reset of one of two", seen(function(resets=True), function(B)), plan.Remove(address=B)),
    ("no drivers", seen(function(), function(B)), plan.Remove(address=B)),
    (
        "a switch on the card",
        seen(function("0000:02:00.0", path=f"{PORT}/{A}/0000:02:00.0"), function(A)),
        plan.Remove(address="0000:02:00.0"),
    ),
    ("a virtual function by itself", seen(VIRTUAL), plan.Remove(address=VIRTUAL.address)),
]


@pytest.mark.parametrize(
    ("observed", "action"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_the_next_step(observed, action):
    assert plan.plan(observed) == action


@pytest.mark.parametrize("action", [case[2] for case in CASES], ids=[case[0] for case in CASES])
def test_every_step_has_words(action):
    assert plan.words(action)


class Kernel:
    """A pure kernel: what a step does to what is observed, and what it must not be asked."""

    def __init__(self, observed):
        self.observed = observed

    def do(self, action):
        seen, functions = self.observed, self.observed.functions
        assert not seen.used_by, "nothing is done to a device that is used"
        match action:
            case plan.DropVirtualFunctions(address=address):
                functions = tuple(
                    dataclasses.replace(function, vfs=0) if function.address == address else function
                    for function in functions
                    if not function.virtual
                )
            case plan.Quiesce():
                assert not any(function.vfs for function in functions)
                self.observed = dataclasses.replace(seen, pending_quiesce_step=None)
                return
            case plan.Erase():
                assert seen.pending_quiesce_step is None
                assert any(function.bound for function in functions)
                self.observed = dataclasses.replace(seen, data=None)
                return
            case plan.Bind(address=address):
                functions = tuple(
                    dataclasses.replace(function, bound=True) if function.address == address else function
                    for function in functions
                )
            case plan.Unbind(address=address):
                assert seen.pending_quiesce_step is None
                assert seen.data is None
                assert not any(function.vfs for function in functions)
                functions = tuple(
                    dataclasses.replace(function, bound=False) if function.address == address else function
                    for function in functions
                )
            case plan.Remove(address=address):
                assert seen.pending_quiesce_step is None
                assert seen.data is None
                (gone,) = (function for function in functions if function.address == address)
                assert not gone.vfs
                assert action.reset or not gone.resets
                assert not any(function.bound and not function.virtual for function in functions)
                functions = tuple(
                    function
                    for function in functions
                    if function != gone and not function.path.startswith(gone.path + "/")
                )
            case plan.PowerOff():
                assert not functions
                assert seen.slot is not None
                assert not seen.slot.taken
                self.observed = dataclasses.replace(seen, slot=dataclasses.replace(seen.slot, powered=False))
                return
        self.observed = dataclasses.replace(self.observed, functions=functions)


def worlds():
    def build(numbers, nested, slot, unrest, data):
        functions = [
            function(f"0000:01:00.{n}", bound=bound, vfs=vfs, resets=resets)
            for n, (bound, vfs, resets) in numbers.items()
        ]
        functions += [
            function(f"0000:01:02.{n}", bound=True, virtual=True)
            for n, parent in enumerate(functions)
            if parent.vfs
        ]
        if nested and functions:
            functions.append(function("0000:02:00.0", path=f"{functions[0].path}/0000:02:00.0", bound=True))
        return plan.Observed(
            functions=tuple(functions),
            slot=slot,
            pending_quiesce_step=unrest if functions else None,
            data=functions[0].address if data and functions else None,
        )

    flags = st.sampled_from([None, False, True])
    slots = st.none() | st.builds(plan.Slot, name=st.just("1"), powered=flags, present=flags)
    return st.builds(
        build,
        st.dictionaries(
            st.integers(0, 7), st.tuples(st.booleans(), st.integers(0, 2), st.booleans()), max_size=4
        ),
        st.booleans(),
        slots,
        st.sampled_from([None, "x"]),
        st.booleans(),
    )


@given(worlds())
def test_every_prefix_of_a_release_is_safe_and_it_ends_with_everything_off(observed):
    kernel = Kernel(observed)
    for _ in range(40):
        action = plan.plan(kernel.observed)
        if isinstance(action, plan.Done):
            break
        kernel.do(action)
    assert action == plan.Done()
    assert not kernel.observed.functions
    slot = kernel.observed.slot
    assert slot is None or not slot.powered or slot.present is False


@given(worlds(), st.integers(0, 12))
def test_a_user_who_appears_after_any_step_stops_the_release(observed, steps):
    kernel = Kernel(observed)
    for _ in range(steps):
        action = plan.plan(kernel.observed)
        if isinstance(action, plan.Done):
            return
        kernel.do(action)
    used = dataclasses.replace(kernel.observed, used_by=USER)
    assert isinstance(plan.plan(used), plan.Wait)


def test_the_functions_of_a_card_with_ari_go_from_the_last_to_function_0():
    addresses = ["0000:01:00.0", "0000:01:00.7", "0000:01:01.0", "0000:01:1f.7"]
    remaining = [function(address) for address in addresses]
    removed = []
    while remaining:
        action = plan.plan(plan.Observed(functions=tuple(remaining), slot=None))
        assert isinstance(action, plan.Remove)
        removed.append(action.address)
        remaining = [each for each in remaining if each.address != action.address]
    assert removed == addresses[::-1]
