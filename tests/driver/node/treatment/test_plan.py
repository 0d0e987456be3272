"""The next step of a treatment, decided purely."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.catalogue import reasons
from drawbar.driver.node.treatment import plan

A, B = "0000:01:00.0", "0000:01:00.1"
PORT = "devices/pci0000:00/0000:00:03.0"
ON = plan.Slot(name="1", powered=True)
USER = ("held by pid 1 (x), /dev/y",)


def function(address=A, *, path=None, **more):
    return plan.Function(address=address, path=path or f"{PORT}/{address}", **more)


def observe_leaving(*functions, slot=ON, **more):
    return plan.Observed(leaves=True, functions=functions, slot=slot, **more)


def observe_staying(*functions, **more):
    return plan.Observed(leaves=False, functions=functions, **more)


GONE = plan.Block(
    reason=reasons.KERNEL_REFUSED,
    message="the kernel does not show the device any more; look at its link and its power",
)
DUE = plan.Draining(is_due=True, message="it ran")
RUNS = plan.Draining(is_running=True, message="it runs")
BOUND = function(bound=True)
VIRTUAL = function("0000:01:00.4", bound=True, virtual=True)
CASES = [
    ("nothing is left", observe_leaving(slot=None), plan.Finish()),
    ("a slot that is on", observe_leaving(), plan.PowerOff(slot="1")),
    ("a slot that is off", observe_leaving(slot=msgspec.structs.replace(ON, powered=False)), plan.Finish()),
    (
        "a slot without a switch",
        observe_leaving(slot=msgspec.structs.replace(ON, powered=None)),
        plan.Finish(),
    ),
    ("a slot that is empty", observe_leaving(slot=msgspec.structs.replace(ON, present=False)), plan.Finish()),
    (
        "a slot that does not say",
        observe_leaving(slot=msgspec.structs.replace(ON, present=None)),
        plan.PowerOff(slot="1"),
    ),
    (
        "a slot with another card",
        observe_leaving(slot=msgspec.structs.replace(ON, taken=True)),
        plan.Finish(),
    ),
    (
        "a user",
        observe_leaving(BOUND, used_by=USER),
        plan.Block(reason=reasons.IN_USE, message="held by pid 1 (x), /dev/y"),
    ),
    (
        "a user and virtual functions",
        observe_leaving(function(bound=True, vfs=2), used_by=USER),
        plan.Block(reason=reasons.IN_USE, message="held by pid 1 (x), /dev/y"),
    ),
    (
        "virtual functions",
        observe_leaving(function(bound=True, vfs=2), VIRTUAL, pending_quiesce_step="x"),
        plan.DropVirtualFunctions(address=A),
    ),
    (
        "a quiesce step is pending",
        observe_leaving(BOUND, pending_quiesce_step="region0 is there"),
        plan.Quiesce(pending="region0 is there"),
    ),
    ("data", observe_leaving(BOUND, data=A), plan.Erase()),
    ("data and no driver", observe_leaving(function(), data=A), plan.Bind(address=A)),
    ("data that need no driver", observe_leaving(function(), data=A, driverless=True), plan.Erase()),
    (
        "data and a pending quiesce step",
        observe_leaving(BOUND, data=A, pending_quiesce_step="x"),
        plan.Quiesce(pending="x"),
    ),
    ("a driver", observe_leaving(BOUND), plan.Unbind(address=A)),
    ("two drivers", observe_leaving(BOUND, function(B, bound=True)), plan.Unbind(address=B)),
    ("one driver of two", observe_leaving(BOUND, function(B)), plan.Unbind(address=A)),
    ("no driver", observe_leaving(function()), plan.Remove(address=A)),
    ("a reset", observe_leaving(function(resets=True)), plan.Remove(address=A, reset=True)),
    (
        "a reset below a driver",
        observe_leaving(function(resets=True), function(B, bound=True)),
        plan.Unbind(address=B),
    ),
    ("a reset of one of two", observe_leaving(function(resets=True), function(B)), plan.Remove(address=B)),
    ("no drivers", observe_leaving(function(), function(B)), plan.Remove(address=B)),
    (
        "a switch on the card",
        observe_leaving(function("0000:02:00.0", path=f"{PORT}/{A}/0000:02:00.0"), function(A)),
        plan.Remove(address="0000:02:00.0"),
    ),
    (
        "a user and a hook that may run",
        observe_leaving(BOUND, used_by=USER, draining=DUE),
        plan.Drain(message="held by pid 1 (x), /dev/y"),
    ),
    (
        "a user and a hook that runs",
        observe_leaving(BOUND, used_by=USER, draining=RUNS),
        plan.Block(reason=reasons.IN_USE, message="held by pid 1 (x), /dev/y; it runs"),
    ),
    (
        "no user any more and a hook that runs",
        observe_staying(BOUND, draining=RUNS),
        plan.Block(reason=reasons.IN_USE, message="it runs"),
    ),
    ("no user and a hook that may run", observe_leaving(BOUND, draining=DUE), plan.Unbind(address=A)),
    (
        "stays in use",
        observe_staying(BOUND, used_by=USER),
        plan.Block(reason=reasons.IN_USE, message=USER[0]),
    ),
    (
        "stays with virtual functions",
        observe_staying(function(bound=True, vfs=2)),
        plan.DropVirtualFunctions(address=A),
    ),
    ("stays with data", observe_staying(BOUND, data=A), plan.Erase()),
    ("stays without a driver, with data", observe_staying(function(), data=A), plan.Bind(address=A)),
    ("stays and is to be reset", observe_staying(function(bound=True, resets=True)), plan.Reset(address=A)),
    ("stays and is only flushed", observe_staying(BOUND), plan.Reset(address="")),
    ("stays and is clean", observe_staying(BOUND, is_flushed=True), plan.Finish()),
    ("stays and has gone", observe_staying(is_flushed=True), GONE),
    ("a virtual function by itself", observe_leaving(VIRTUAL), plan.Remove(address=VIRTUAL.address)),
]


@pytest.mark.parametrize(
    ("observed", "action"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_the_next_step(observed, action):
    assert plan.plan(observed) == action


@pytest.mark.parametrize(
    "step",
    [case[2] for case in CASES if isinstance(case[2], plan.Step)],
    ids=lambda step: type(step).__name__,
)
def test_every_step_is_described(step):
    assert plan.describe(step)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ((reasons.NO_PROGRESS, "not for 12 s"), True),
        ((reasons.IN_USE, "not for 10 s"), False),
    ],
    ids=["later", "another reason"],
)
def test_a_report_that_only_counts_seconds_says_the_same(other, same):
    assert plan.says_the_same((reasons.NO_PROGRESS, "not for 10 s"), other) == same


def test_another_obstacle_says_another_thing():
    assert not plan.says_the_same((reasons.IN_USE, "held by pid 1"), (reasons.IN_USE, "held by pid 2"))


class ModelKernel:
    """A pure kernel and daemon: what a step does to what is observed. It asserts the invariants of `plan` at each step."""

    def __init__(self, observed):
        self.observed = observed
        self.had_data = observed.data is not None
        self.reset, self.removed = [], []

    def replace(self, **changes):
        self.observed = msgspec.structs.replace(self.observed, **changes)

    def change(self, address, **changes):
        self.replace(
            functions=tuple(
                msgspec.structs.replace(each, **changes) if each.address == address else each
                for each in self.observed.functions
            )
        )

    def do(self, action):
        seen = self.observed
        assert not seen.used_by, "nothing is done to a device that is used"
        assert not seen.draining.is_running
        if isinstance(action, plan.Erase | plan.Reset | plan.Unbind | plan.Remove):
            assert seen.pending_quiesce_step is None
            assert not any(each.vfs for each in seen.functions)
        if isinstance(action, plan.Reset | plan.Unbind | plan.Remove):
            assert seen.data is None
        assert seen.leaves or not isinstance(action, plan.Unbind | plan.Remove | plan.PowerOff)
        match action:
            case plan.DropVirtualFunctions(address=address):
                self.replace(functions=tuple(each for each in seen.functions if not each.virtual))
                self.change(address, vfs=0)
            case plan.Quiesce():
                self.replace(pending_quiesce_step=None)
            case plan.Bind(address=address):
                self.change(address, bound=True)
            case plan.Erase():
                assert seen.driverless or any(each.bound for each in seen.functions)
                self.replace(data=None)
            case plan.Reset(address=address):
                assert not seen.leaves, "a device that leaves is reset when it is removed"
                self.reset.append(address)
                self.change(address, resets=False)
                self.replace(is_flushed=True)
            case plan.Unbind(address=address):
                self.change(address, bound=False)
            case plan.Remove(address=address, reset=reset):
                (gone,) = (each for each in seen.functions if each.address == address)
                assert reset == gone.resets
                assert not any(each.bound and not each.virtual for each in seen.functions)
                self.reset += [address] if reset else []
                self.removed.append(address)
                below = gone.path + "/"
                self.replace(
                    functions=tuple(
                        each for each in seen.functions if each != gone and not each.path.startswith(below)
                    )
                )
            case plan.PowerOff():
                assert not seen.functions
                assert seen.slot is not None
                assert not seen.slot.taken
                self.replace(slot=msgspec.structs.replace(seen.slot, powered=False))
            case _:
                raise AssertionError(action)

    def assert_invariants(self):
        """Assert the invariants of every prefix of every plan."""
        assert len(set(self.reset)) == len(self.reset), "each function is reset at most once"
        assert len(set(self.removed)) == len(self.removed), "each function is removed at most once"
        if plan.plan(self.observed) == plan.Finish():
            left = self.observed
            assert (left.used_by, left.pending_quiesce_step, left.data) == ((), None, None)
            assert not any(each.resets or each.vfs for each in left.functions)
            assert not left.leaves or not left.functions


@st.composite
def worlds(draw):
    """Draw a device with up to four functions, its slot, and what its user left."""
    leaves = draw(st.booleans())
    functions = []
    for number in sorted(draw(st.sets(st.integers(0, 7), max_size=4))):
        address, bound = f"0000:01:00.{number}", draw(st.booleans())
        vfs, resets = draw(st.integers(0, 2)), draw(st.booleans())
        functions.append(function(address, bound=bound, vfs=vfs, resets=resets))
        functions += [
            function(f"0000:01:0{number + 1}.{virtual}", bound=draw(st.booleans()), virtual=True)
            for virtual in range(vfs)
        ]
    if functions and leaves and draw(st.booleans()):
        below = f"{functions[0].path}/0000:02:00.0"
        functions.append(function("0000:02:00.0", path=below, bound=draw(st.booleans())))
    flags = st.sampled_from([None, False, True])
    slot = st.none() | st.builds(
        plan.Slot, name=st.just("1"), powered=flags, present=flags, taken=st.just(False)
    )
    return plan.Observed(
        leaves=leaves,
        functions=tuple(functions),
        slot=draw(slot) if leaves else None,
        pending_quiesce_step=draw(st.sampled_from([None, "x"])) if functions else None,
        data=functions[0].address if functions and draw(st.booleans()) else None,
        driverless=draw(st.booleans()),
    )


@given(worlds())
def test_every_prefix_of_every_treatment_is_safe_and_it_comes_to_its_end(observed):
    world = ModelKernel(observed)
    for _ in range(40):
        world.assert_invariants()
        action = plan.plan(world.observed)
        if isinstance(action, plan.Finish | plan.Block):
            break
        world.do(action)
    if not observed.leaves and not observed.functions:
        assert action == GONE
        return
    assert action == plan.Finish()
    slot = world.observed.slot
    assert slot is None or not slot.powered or slot.present is False
    wanted = {each.address for each in observed.functions if each.resets}
    assert wanted <= set(world.reset)


@given(worlds(), st.integers(0, 12), st.sampled_from([plan.NO_DRAINING, DUE, RUNS]))
def test_a_user_who_appears_after_any_step_stops_the_treatment(observed, steps, draining):
    world = ModelKernel(observed)
    for _ in range(steps):
        action = plan.plan(world.observed)
        if isinstance(action, plan.Finish | plan.Block):
            return
        world.do(action)
    action = plan.plan(msgspec.structs.replace(world.observed, used_by=USER, draining=draining))
    assert isinstance(action, plan.Drain if draining.is_due else plan.Block)


@given(worlds(), st.integers(0, 12))
def test_a_treatment_goes_on_after_a_crash_at_any_step(observed, steps):
    """A new daemon sees the state of the kernel, but does not know what was reset or flushed."""
    world = ModelKernel(observed)
    for _ in range(steps):
        action = plan.plan(world.observed)
        if isinstance(action, plan.Finish | plan.Block):
            break
        world.do(action)
    resets = {each.address: each.resets for each in observed.functions}
    again = ModelKernel(
        msgspec.structs.replace(
            world.observed,
            is_flushed=False,
            functions=tuple(
                msgspec.structs.replace(each, resets=resets[each.address])
                for each in world.observed.functions
            ),
        )
    )
    for _ in range(40):
        again.assert_invariants()
        action = plan.plan(again.observed)
        if isinstance(action, plan.Finish | plan.Block):
            break
        again.do(action)
    gone = not observed.leaves and not observed.functions
    assert isinstance(action, plan.Block if gone else plan.Finish)


def test_the_functions_of_a_card_with_ari_go_from_the_last_to_function_0():
    addresses = ["0000:01:00.0", "0000:01:00.7", "0000:01:01.0", "0000:01:1f.7"]
    remaining = [function(address) for address in addresses]
    removed = []
    while remaining:
        action = plan.plan(plan.Observed(leaves=True, functions=tuple(remaining)))
        assert isinstance(action, plan.Remove)
        removed.append(action.address)
        remaining = [each for each in remaining if each.address != action.address]
    assert removed == addresses[::-1]
