"""Slices that the API server refuses: which writes wait with one, for how long, and what is reported of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.driver.slices.test_pool_writes import pool, publish_pools

from drawbar.driver.kube import errors
from drawbar.driver.slices import pool_writes, retries

REFUSED = errors.Invalid("no")


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self):
        return self.now


class Server:
    """An API server that refuses the slices of some names."""

    def __init__(self, before=(), refused=(), error=REFUSED):
        self.state = {each.metadata.name: each for each in before}
        self.refused, self.error = set(refused), error
        self.clock, self.tried = Clock(), []
        self.retries = retries.Retries(self.clock, uniform=lambda _, high: high)

    def round(self, *pools):
        """Run the writes of one round; return the names of the slices that were tried."""
        writes = pool_writes.writes(pools, tuple(self.state.values()))
        self.retries.begin(writes)
        self.tried = []
        for write in writes:
            name = write.slice.metadata.name
            before = self.state.get(name)
            if self.retries.has_to_wait(write, before):
                continue
            self.tried.append(name)
            if name in self.refused:
                self.retries.refuse(write, before, self.error)
                if self.retries.is_over:
                    break
                continue
            self.retries.accept(write)
            if isinstance(write, pool_writes.Delete):
                del self.state[name]
            else:
                self.state[name] = write.slice
            self.check()
        return self.tried

    def check(self):
        """Assert that no device is in two pools."""
        homes = {}
        for each in self.state.values():
            for device in each.spec.devices:
                homes.setdefault(device.name, set()).add(each.spec.pool.name)
        assert all(len(pools) == 1 for pools in homes.values()), homes


def test_the_slices_after_a_refused_one_are_written():
    server = Server(refused={"slice-a"})
    assert server.round(pool("a", "1"), pool("b", "2"), pool("c", "3")) == ["slice-a", "slice-b", "slice-c"]
    assert server.state.keys() == {"slice-b", "slice-c"}
    message = server.retries.message()
    assert "1 of the ResourceSlices" in message
    assert "ResourceSlice slice-a (pool a): no" in message
    assert server.retries.error_of("1") is REFUSED
    assert server.retries.error_of("2") is None


def test_a_refused_slice_is_tried_again_after_pauses_that_grow():
    server = Server(refused={"slice-a"})
    pauses = []
    for _ in range(10):
        server.round(pool("a", "1"))
        pauses.append(server.retries.seconds_left())
        assert server.round(pool("a", "1")) == []
        server.clock.now += pauses[-1]
    assert pauses[:3] == [0.5, 1.0, 2.0]
    assert pauses[-1] == retries.MAX_SECONDS
    server.refused = set()
    assert server.round(pool("a", "1")) == ["slice-a"]
    assert (server.retries.message(), server.retries.seconds_left()) == ("", None)


def test_a_slice_with_other_content_is_tried_at_once():
    server = Server(refused={"slice-a"})
    server.round(pool("a", "1"))
    assert server.round(pool("a", "1", "2")) == ["slice-a"]


def test_a_slice_that_is_not_wanted_any_more_is_forgotten():
    server = Server(refused={"slice-a"})
    server.round(pool("a", "1"))
    server.round(pool("b", "2"))
    assert server.retries.message() == ""


def test_a_device_stays_in_the_pool_that_cannot_be_changed():
    server = Server(publish_pools(pool("a", "1", "2"), pool("b", "3")), refused={"slice-a"})
    assert server.round(pool("a", "1"), pool("b", "2", "3"), pool("c", "4")) == ["slice-a", "slice-c"]
    server.refused = set()
    server.clock.now = server.retries.seconds_left()
    assert server.round(pool("a", "1"), pool("b", "2", "3"), pool("c", "4")) == ["slice-a", "slice-b"]


def test_the_rest_of_a_pool_waits_with_its_refused_slice():
    server = Server(refused={"slice-a"})
    server.round(pool("a", "1", taints=["1"]), pool("b", "2", taints=[]))
    assert server.state.keys() == {"slice-b", "slice-b-taints"}


@pytest.mark.parametrize(
    "error", [errors.Conflict("stale"), errors.AlreadyExists("there"), errors.NotFound("gone")]
)
def test_a_stale_view_ends_no_round_and_is_shown_only_if_it_lasts(error):
    server = Server(refused={"slice-a"}, error=error)
    for _ in range(retries.STALE_MAX):
        assert server.round(pool("a", "1"), pool("b", "2"))[:1] == ["slice-a"]
        assert server.state.keys() == {"slice-b"}
        assert (server.retries.stale, server.retries.message()) == (error, "")
    server.round(pool("a", "1"), pool("b", "2"))
    assert server.retries.stale is None
    assert "ResourceSlice slice-a" in server.retries.message()


def test_where_everything_is_refused_a_round_ends_early_and_the_next_one_goes_on_elsewhere():
    pools = [pool(f"p{number:02}", f"d{number}") for number in range(retries.REFUSED_MAX + 1)]
    server = Server(refused={f"slice-p{number:02}" for number in range(retries.REFUSED_MAX)})
    assert len(server.round(*pools)) == retries.REFUSED_MAX
    assert server.round(*pools) == [f"slice-p{retries.REFUSED_MAX:02}"]
    assert len(server.retries.message()) < 4 * retries.MESSAGE_CHARS


names = st.sampled_from("abcd")
moves = st.tuples(st.sampled_from("123456"), st.none() | names)


@given(
    moved=st.lists(moves, min_size=1, max_size=20),
    apart=st.booleans(),
    refusals=st.lists(st.sets(names), min_size=1, max_size=6),
)
def test_refused_writes_never_put_a_device_into_two_pools(moved, apart, refusals):
    server, homes = Server(), {}

    def pools():
        by_pool = {}
        for device, name in sorted(homes.items()):
            by_pool.setdefault(name, []).append(device)
        return [
            pool(name, *devices, taints=devices[:1] if apart else None) for name, devices in by_pool.items()
        ]

    for number, (device, name) in enumerate(moved):
        homes.pop(device, None)
        if name is not None:
            homes[device] = name
        server.refused = {f"slice-{refused}" for refused in refusals[number % len(refusals)]}
        server.round(*pools())
        server.clock.now += 1.0
    server.refused = set()
    for _ in range(10):
        server.clock.now += retries.MAX_SECONDS
        server.round(*pools())
    assert pool_writes.writes(pools(), tuple(server.state.values())) == ()
