"""Operations run as many at once as a fabric allows; namespaces, and their hosts, are served in turn."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from drawbar.driver.controller import names
from drawbar.driver.controller.fabrics import operation_queue
from drawbar.fabric.contract import Capabilities, SerializationScope

NAMESPACE = "default"
ONE_AT_A_TIME = Capabilities(serialization_scope=SerializationScope.FABRIC)
ONE_PER_HOST = Capabilities(serialization_scope=SerializationScope.HOST)


def key(name):
    return names.DeviceKey(fabric="f", device=name)


def test_without_a_limit_everybody_goes_at_once():
    line = operation_queue.OperationQueue()
    assert all(line.take(key(f"d{number}"), "h", NAMESPACE) for number in range(10))


def test_a_limit_of_one_serves_the_hosts_in_rotation():
    line = operation_queue.OperationQueue()
    line.allow(ONE_AT_A_TIME)
    assert line.take(key("a1"), "a", NAMESPACE)
    for name in ("a2", "a3", "a4", "b1", "b2", "c1"):
        assert not line.take(key(name), name[0], NAMESPACE)
    order, now = [], key("a1")
    while granted := line.give(now):
        (now,) = granted
        order.append(now.device)
    assert order == ["a2", "b1", "c1", "a3", "b2", "a4"]


def test_one_at_a_time_serves_the_namespaces_in_turn_however_many_devices_one_waits_for():
    line = operation_queue.OperationQueue()
    line.allow(ONE_AT_A_TIME)
    assert line.take(key("n0"), "a", "noisy")
    for number in range(1, 6):
        assert not line.take(key(f"n{number}"), "abc"[number % 3], "noisy")
    assert not line.take(key("q1"), "a", "quiet")
    # A device that asks again keeps its place.
    assert not line.take(key("n1"), "b", "noisy")
    order, now = [], key("n0")
    while granted := line.give(now):
        (now,) = granted
        order.append(now.device)
    assert order == ["n1", "q1", "n2", "n3", "n4", "n5"]


def test_one_per_host_runs_the_hosts_side_by_side():
    line = operation_queue.OperationQueue()
    line.allow(ONE_PER_HOST)
    assert line.take(key("a1"), "a", NAMESPACE)
    assert line.take(key("b1"), "b", NAMESPACE)
    assert not line.take(key("a2"), "a", NAMESPACE)
    assert line.give(key("b1")) == ()
    assert line.give(key("a1")) == (key("a2"),)


def test_who_waits_and_gives_up_is_passed_over():
    line = operation_queue.OperationQueue()
    line.allow(ONE_AT_A_TIME)
    line.take(key("a"), "h", NAMESPACE)
    line.take(key("b"), "h", NAMESPACE)
    line.take(key("c"), "h", NAMESPACE)
    assert line.give(key("b")) == ()
    assert line.give(key("a")) == (key("c"),)


def test_an_operation_that_an_earlier_process_began_has_its_place():
    line = operation_queue.OperationQueue()
    line.allow(ONE_AT_A_TIME)
    line.occupy(key("a"), "h")
    assert not line.take(key("b"), "h", NAMESPACE)
    assert line.take(key("a"), "h", NAMESPACE)
    assert line.give(key("a")) == (key("b"),)


def test_a_fabric_that_allows_more_serves_those_who_wait():
    line = operation_queue.OperationQueue()
    line.allow(ONE_AT_A_TIME)
    line.take(key("a"), "h", NAMESPACE)
    line.take(key("b"), "h", NAMESPACE)
    assert line.allow(Capabilities(max_concurrent_operations=2)) == (key("b"),)


class Line(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.line = operation_queue.OperationQueue()
        self.line.allow(
            Capabilities(max_concurrent_operations=3, serialization_scope=SerializationScope.HOST)
        )
        self.running = {}
        self.waiting = {}

    def _run(self, granted):
        for device in granted:
            self.running[device] = self.waiting.pop(device)

    @rule(number=st.integers(0, 9), host=st.sampled_from("abcd"), namespace=st.sampled_from("xyz"))
    def ask(self, number, host, namespace):
        device = key(f"d{number}")
        if device in self.running or device in self.waiting:
            return
        self.waiting[device] = host
        if self.line.take(device, host, namespace):
            self._run([device])

    @rule(number=st.integers(0, 9))
    def give(self, number):
        device = key(f"d{number}")
        self.running.pop(device, None)
        self.waiting.pop(device, None)
        self._run(self.line.give(device))

    @invariant()
    def the_limits_hold_and_no_place_is_left_empty(self):
        hosts = list(self.running.values())
        assert len(hosts) <= 3
        assert len(set(hosts)) == len(hosts)
        if len(hosts) < 3:
            assert set(self.waiting.values()) <= set(hosts)


TestLine = Line.TestCase
TestLine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_any_number_of_devices_may_wait_for_one_host():
    line = operation_queue.OperationQueue()
    line.allow(ONE_PER_HOST)
    names_waiting = [f"d{number:05}" for number in range(20_000)]
    assert line.take(key("first"), "h", NAMESPACE)
    assert not any(line.take(key(name), "h", NAMESPACE) for name in names_waiting)
    assert line.give(key("first")) == (key(names_waiting[0]),)
    # The fabric was upgraded: they all go at once, in their order.
    assert [granted.device for granted in line.allow(Capabilities())] == names_waiting[1:]
