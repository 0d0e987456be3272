"""The decisions of the health monitor: what they never do, whatever is reported, and what they do in time."""

import datetime

import hypothesis
import msgspec
import pytest
from hypothesis import stateful, strategies

from drawbar.driver.api import healthpolicies, meta, slices, taintrules
from drawbar.driver.healthmonitor import causes, inventory, signals, tainting

START = datetime.datetime(2026, 5, 1, 12, tzinfo=datetime.UTC)
DRIVER = "drawbar.dev"
ALERT = healthpolicies.Source.ALERT


def policy(name="p", **fields):
    spec = {"source": ALERT, "hold": healthpolicies.Hold(seconds=60, times=1), "minimum_healthy_percent": 0}
    return healthpolicies.HealthPolicy(
        metadata=meta.ObjectMeta(name=name), spec=healthpolicies.Spec(**(spec | fields))
    )


def make_slices(pools=None, *, fabric="fab", driver=DRIVER, classes=("nvme",), taints=()):
    """Return slices with so many devices d0, d1, … in each pool, of these classes in turn."""
    return [
        slices.ResourceSlice(
            metadata=meta.ObjectMeta(name=pool),
            spec=slices.SliceSpec(
                driver=driver,
                pool=slices.Pool(name=pool, generation=1, resource_slice_count=1),
                devices=tuple(
                    slices.Device(
                        name=f"{pool}-d{number}",
                        attributes={
                            "class": slices.Attribute(string=classes[number % len(classes)]),
                            "fabric": slices.Attribute(string=fabric),
                            "serial": slices.Attribute(string=f"S-{pool}-{number}"),
                        },
                        taints=taints,
                    )
                    for number in range(count)
                ),
            ),
        )
        for pool, count in (pools or {"a": 4}).items()
    ]


def signal(device, *, firing=True, fingerprint=None, source=ALERT, **labels):
    return signals.Signal(
        source=source,
        labels={"device": device, **labels},
        fingerprint=fingerprint or f"about {device}",
        firing=firing,
    )


def document_of(rule_name, key, policy, until, effect, now):
    return taintrules.DeviceTaintRule(
        metadata=meta.ObjectMeta(
            name=rule_name,
            uid=rule_name,
            labels={taintrules.RULE_LABEL: rule_name, healthpolicies.MONITOR_LABEL: DRIVER},
            annotations={
                healthpolicies.POLICY_ANNOTATION: key.policy,
                healthpolicies.EFFECT_ANNOTATION: effect,
                healthpolicies.ACTED_ANNOTATION: meta.timestamp(now),
                taintrules.EXPIRES_ANNOTATION: meta.timestamp(until),
            },
        ),
        spec=taintrules.RuleSpec(
            taint=slices.Taint(key=policy.spec.taint.key, value=key.policy, effect=effect),
            device_selector=taintrules.DeviceSelector(
                driver=key.device.driver, pool=key.device.pool, device=key.device.name
            ),
        ),
    )


class MonitoredCluster:
    """A cluster in memory with a monitor, as `monitor` carries decisions out."""

    def __init__(self, *policies, listed=None, dry_run=False):
        self.policies = {item.metadata.name: item for item in policies}
        self.devices = inventory.list_published(DRIVER, make_slices() if listed is None else listed)
        self.rules = {}
        self.foreign = []
        self.state = causes.State()
        self.now = START
        self.dry_run = dry_run

    def report(self, *reported, complete=False, source=ALERT):
        batch = signals.Batch(source=source, signals=reported, complete=complete)
        seen = causes.observe(self.state, batch, self.policies, self.devices, self.now)
        self.state = seen.state
        return dict(seen.outcomes)

    def pass_(self, seconds):
        self.now += datetime.timedelta(seconds=seconds)

    def look(self):
        # What the controller does: controller/expiry.py.
        for name, rule in list(self.rules.items()):
            if rule.expires_at <= self.now:
                del self.rules[name]
        everything = [*self.rules.values(), *self.foreign]
        decided = tainting.decide(
            self.state, self.policies, self.devices, everything, self.now, dry_run=self.dry_run
        )
        self.state = decided.state
        for decision in decided.decisions:
            name = tainting.rule_name(decision.key)
            self.state = tainting.note_action(self.state, decision, self.now)
            match decision:
                case tainting.Taint():
                    assert name not in self.rules
                    owner = self.policies[decision.key.policy]
                    self.rules[name] = document_of(
                        name, decision.key, owner, decision.until, decision.effect, self.now
                    )
                case tainting.Change():
                    rule = self.rules[name]
                    owner = self.policies[decision.key.policy]
                    self.rules[name] = document_of(
                        name, decision.key, owner, rule.expires_at, decision.effect, self.now
                    )
                case tainting.Renew():
                    rule = self.rules[name]
                    changed = rule.metadata.annotations | {
                        taintrules.EXPIRES_ANNOTATION: meta.timestamp(decision.until)
                    }
                    metadata = msgspec.structs.replace(rule.metadata, annotations=changed)
                    self.rules[name] = msgspec.structs.replace(rule, metadata=metadata)
                case tainting.Lift():
                    del self.rules[name]
        return decided.decisions

    def restart(self):
        mine = tainting.own(self.rules.values(), DRIVER)
        self.state = causes.restore(mine, self.policies, self.now)

    @property
    def tainted(self):
        return sorted(rule.spec.device_selector.device for rule in self.rules.values())


def summarise(decisions):
    return [(type(item).__name__, item.key.device.name, str(item.reason)) for item in decisions]


def test_a_device_is_tainted_once_its_alert_has_held_and_freed_once_it_was_clear_as_long():
    world = MonitoredCluster(policy())
    assert world.report(signal("a-d0")) == {"used": 1, "limit": 0}
    assert world.look() == ()
    world.pass_(59)
    assert world.look() == ()
    world.pass_(1)
    assert summarise(world.look()) == [("Taint", "a-d0", "Held")]
    assert next(iter(world.rules.values())).spec.taint.effect == "None", "the default does nothing"
    world.report(signal("a-d0", firing=False))
    world.pass_(59)
    assert world.look() == ()
    world.pass_(1)
    assert summarise(world.look()) == [("Lift", "a-d0", "Clear")]
    assert world.rules == {}


def test_an_alert_that_fires_again_before_it_was_clear_for_long_enough_keeps_the_rule():
    world = MonitoredCluster(policy())
    world.report(signal("a-d0"))
    world.pass_(60)
    world.look()
    world.report(signal("a-d0", firing=False))
    world.pass_(50)
    world.report(signal("a-d0"))
    world.pass_(50)
    assert world.look() == ()
    assert world.tainted == ["a-d0"]


def test_an_alert_that_comes_and_goes_never_taints():
    world = MonitoredCluster(policy())
    for _ in range(10):
        world.report(signal("a-d0"))
        world.pass_(40)
        assert world.look() == ()
        world.report(signal("a-d0", firing=False))
        world.pass_(20)
        assert world.look() == ()


def test_a_count_must_be_reached_by_reports_and_not_by_the_alerts_of_one_of_them():
    world = MonitoredCluster(policy(hold=healthpolicies.Hold(seconds=0, times=3)))
    many = [signal("a-d0", fingerprint=str(number)) for number in range(10)]
    for reports in range(2):
        world.report(*many)
        assert world.look() == (), reports
    world.report(*many)
    assert summarise(world.look()) == [("Taint", "a-d0", "Held")]


def test_two_alerts_about_a_device_hold_until_both_are_clear():
    world = MonitoredCluster(policy())
    world.report(signal("a-d0", fingerprint="1"), signal("a-d0", fingerprint="2"))
    world.pass_(60)
    world.look()
    world.report(signal("a-d0", fingerprint="1", firing=False))
    world.pass_(600)
    world.look()
    assert world.tainted == ["a-d0"]
    world.report(signal("a-d0", fingerprint="2", firing=False))
    world.pass_(60)
    world.look()
    assert world.tainted == []


def test_the_minimum_healthy_share_of_a_pool_and_of_a_class_is_kept():
    world = MonitoredCluster(
        policy(minimum_healthy_percent=50),
        listed=make_slices({"a": 4, "b": 10}, classes=("nvme", "gpu")),
    )
    world.report(*(signal(f"a-d{number}") for number in range(4)))
    world.pass_(60)
    assert summarise(world.look()) == [
        ("Taint", "a-d0", "Held"),
        ("Taint", "a-d1", "Held"),
        ("Withhold", "a-d2", "MinimumHealthyShare"),
        ("Withhold", "a-d3", "MinimumHealthyShare"),
    ]
    world = MonitoredCluster(
        policy(minimum_healthy_percent=50),
        listed=make_slices({"a": 3, "b": 30}, classes=("gpu", "nvme", "nvme")),
    )
    gpus = [f"b-d{number}" for number in range(0, 30, 3)]
    world.policies["p"] = policy(
        minimum_healthy_percent=50, rate=healthpolicies.Rate(devices=100, seconds=60)
    )
    world.report(*(signal(name) for name in gpus))
    world.pass_(60)
    world.look()
    assert len(world.tainted) == 5, "of 11 devices of the class, though the pool has room for 15"


def test_taints_of_drivers_and_of_administrators_count_against_the_share():
    worn = (slices.Taint(key="drawbar.dev/worn", effect="NoSchedule"),)
    listed = [*make_slices({"a": 8}), *make_slices({"w": 2}, taints=worn)]
    world = MonitoredCluster(
        policy(minimum_healthy_percent=80, rate=healthpolicies.Rate(devices=50)), listed=listed
    )
    world.report(signal("a-d0"), signal("w-d0"))
    world.pass_(60)
    assert summarise(world.look()) == [
        ("Taint", "w-d0", "Held"),
        ("Withhold", "a-d0", "MinimumHealthyShare"),
    ], "a device that is kept away in any case takes nothing from the share"
    world = MonitoredCluster(policy(minimum_healthy_percent=50))
    administrators = taintrules.DeviceSelector(driver=DRIVER, pool="a")
    world.foreign = [
        taintrules.DeviceTaintRule(
            metadata=meta.ObjectMeta(name="swap"),
            spec=taintrules.RuleSpec(
                taint=slices.Taint(key="x", effect="None"), device_selector=administrators
            ),
        )
    ]
    world.report(signal("a-d0"))
    world.pass_(60)
    world.look()
    assert world.tainted == ["a-d0"], "a rule of others with effect None takes nothing away"


def test_no_more_devices_than_the_rate_are_tainted_and_the_next_ones_follow():
    world = MonitoredCluster(policy(rate=healthpolicies.Rate(devices=1, seconds=100), expire_seconds=1000))
    world.report(*(signal(f"a-d{number}") for number in range(3)))
    world.pass_(60)
    assert summarise(world.look()) == [
        ("Taint", "a-d0", "Held"),
        ("Withhold", "a-d1", "Rate"),
        ("Withhold", "a-d2", "Rate"),
    ]
    world.pass_(99)
    world.look()
    assert world.tainted == ["a-d0"]
    world.restart()
    world.report(*(signal(f"a-d{number}") for number in range(3)))
    world.look()
    assert world.tainted == ["a-d0"], "the rate is kept across a restart"
    world.pass_(61)
    world.look()
    assert world.tainted == ["a-d0", "a-d1"]


def test_a_policy_that_gets_another_effect_gives_it_to_its_rules_at_the_rate():
    world = MonitoredCluster(policy(rate=healthpolicies.Rate(devices=2, seconds=60)))
    world.report(signal("a-d0"), signal("a-d1"))
    world.pass_(60)
    world.look()
    harder = healthpolicies.Taint(effect="NoExecute")
    world.policies["p"] = policy(taint=harder, rate=healthpolicies.Rate(devices=1, seconds=60))
    world.pass_(60)
    assert sorted(summarise(world.look())) == [
        ("Change", "a-d0", "PolicyChanged"),
        ("Withhold", "a-d1", "Rate"),
    ]
    effects = [rule.spec.taint.effect for rule in world.rules.values()]
    assert sorted(effects) == ["NoExecute", "None"]
    world.policies["p"] = policy(rate=healthpolicies.Rate(devices=1, seconds=60))
    world.look()
    assert {rule.spec.taint.effect for rule in world.rules.values()} == {"None"}, "a milder one at once"


def test_an_effect_that_an_administrator_gave_a_rule_stays_and_the_rule_is_still_lifted():
    world = MonitoredCluster(policy())
    world.report(signal("a-d0"))
    world.pass_(60)
    world.look()
    (name,) = world.rules
    rule = world.rules[name]
    taint = msgspec.structs.replace(rule.spec.taint, effect="NoExecute")
    world.rules[name] = msgspec.structs.replace(rule, spec=msgspec.structs.replace(rule.spec, taint=taint))
    assert world.look() == ()
    world.report(signal("a-d0", firing=False))
    world.pass_(60)
    world.look()
    assert world.rules == {}


def test_a_dry_run_only_reports_its_actions():
    for world in (MonitoredCluster(policy(dry_run=True)), MonitoredCluster(policy(), dry_run=True)):
        world.report(signal("a-d0"))
        world.pass_(60)
        assert summarise(world.look()) == [("Withhold", "a-d0", "DryRun")]
        assert world.rules == {}


def test_a_policy_that_only_reports_takes_no_share_from_another():
    world = MonitoredCluster(
        policy("a-dry", dry_run=True, minimum_healthy_percent=75, match_labels={"x": "1"}),
        policy("b-real", minimum_healthy_percent=75, match_labels={"x": "2"}),
    )
    world.report(signal("a-d0", x="1"))
    world.pass_(1)
    world.report(signal("a-d1", x="2"))
    world.pass_(60)
    world.look()
    assert world.tainted == ["a-d1"]


def test_the_rules_of_a_policy_that_is_gone_or_has_another_taint_or_fabric_are_lifted():
    def make_tainted_world():
        world = MonitoredCluster(policy())
        world.report(signal("a-d0"))
        world.pass_(60)
        world.look()
        assert world.tainted == ["a-d0"]
        return world

    world = make_tainted_world()
    del world.policies["p"]
    assert summarise(world.look()) == [("Lift", "a-d0", "PolicyGone")]
    for changed in (policy(taint=healthpolicies.Taint(key="other.dev/x")), policy(fabric="other")):
        world = make_tainted_world()
        world.policies["p"] = changed
        assert summarise(world.look()) == [("Lift", "a-d0", "PolicyChanged")]


def test_a_signal_that_is_not_repeated_expires_and_one_that_is_keeps_its_rule():
    world = MonitoredCluster(policy(expire_seconds=1000))
    world.report(signal("a-d0"), signal("a-d1"))
    world.pass_(60)
    world.look()
    for _ in range(30):
        world.pass_(90)
        world.report(signal("a-d0"))
        world.look()
        assert "a-d0" in world.tainted
    assert world.tainted == ["a-d0"]


def test_after_a_restart_a_rule_stays_until_its_cause_is_reported_clear():
    world = MonitoredCluster(policy())
    world.report(signal("a-d0"))
    world.pass_(60)
    world.look()
    world.restart()
    world.pass_(600)
    world.look()
    assert world.tainted == ["a-d0"]
    world.report(signal("a-d0", firing=False))
    world.pass_(60)
    world.look()
    assert world.tainted == []


def test_a_command_that_lists_a_device_no_longer_has_it_freed_and_a_partial_list_has_not():
    command = healthpolicies.Source.COMMAND
    world = MonitoredCluster(policy(source=command))
    world.report(signal("a-d0", source=command), source=command, complete=True)
    world.pass_(60)
    world.look()
    world.report(source=command)
    world.pass_(60)
    world.look()
    assert world.tainted == ["a-d0"]
    world.report(source=command, complete=True)
    world.pass_(60)
    world.look()
    assert world.tainted == []


def test_a_redfish_event_of_severity_ok_clears_its_origin_despite_its_message():
    redfish = healthpolicies.Source.REDFISH
    world = MonitoredCluster(
        policy(
            source=redfish,
            match_labels={"severity": "Critical"},
            device=healthpolicies.Device(label="originID"),
        )
    )
    events = [
        signals.Signal(
            source=redfish,
            labels={"originID": "a-d0", "severity": severity},
            fingerprint="/redfish/v1/x/a-d0",
            firing=severity != "OK",
        )
        for severity in ("Critical", "OK")
    ]
    world.report(events[0], source=redfish)
    world.pass_(60)
    world.look()
    assert world.tainted == ["a-d0"]
    world.report(events[1], source=redfish)
    world.pass_(60)
    world.look()
    assert world.tainted == []


@pytest.mark.parametrize(
    ("labels", "outcome"),
    [
        pytest.param({"device": "nothing"}, "unknown-device", id="unknown"),
        pytest.param({}, "unknown-device", id="without the label"),
        pytest.param({"device": ""}, "unknown-device", id="empty"),
        pytest.param({"device": "o-d0"}, "unknown-device", id="of another fabric"),
        pytest.param({"device": "f-d0"}, "unknown-device", id="of another driver"),
        pytest.param({"device": "a-d0", "team": "b"}, "unmatched", id="of no policy"),
        pytest.param({"device": "a-d0", "team": "a"}, "used", id="right"),
    ],
)
def test_only_devices_of_the_policys_driver_and_fabric_are_tainted(labels, outcome):
    listed = [
        *make_slices({"a": 2}),
        *make_slices({"o": 2}, fabric="other"),
        *make_slices({"f": 2}, driver="foreign.dev"),
    ]
    match = {"team": "a"} if "team" in labels else {}
    world = MonitoredCluster(policy(fabric="fab", match_labels=match), listed=listed)
    item = signals.Signal(source=ALERT, labels=labels, fingerprint="f", firing=True)
    assert world.report(item) == {outcome: 1, "limit": 0}
    world.pass_(60)
    assert len(world.look()) == (outcome == "used")


def test_an_ambiguous_name_never_selects_a_device():
    def same(pool):
        (item,) = make_slices({pool: 1})
        device = msgspec.structs.replace(item.spec.devices[0], name="same")
        return msgspec.structs.replace(item, spec=msgspec.structs.replace(item.spec, devices=(device,)))

    listed = [same("a"), same("b")]
    by_name = MonitoredCluster(policy(), listed=listed)
    assert by_name.report(signal("same")) == {"unknown-device": 1, "limit": 0}
    by_pool = MonitoredCluster(policy(device=healthpolicies.Device(pool_label="where")), listed=listed)
    assert by_pool.report(signal("same"), signal("same", where="b")) == {
        "unknown-device": 1,
        "used": 1,
        "limit": 0,
    }
    by_serial = MonitoredCluster(
        policy(device=healthpolicies.Device(label="sn", attribute="serial")), listed=make_slices()
    )
    assert by_serial.report(signal("x", sn="S-a-2")) == {"used": 1, "limit": 0}
    by_serial.pass_(60)
    by_serial.look()
    assert by_serial.tainted == ["a-d2"]


def test_the_memory_of_signals_is_bounded():
    world = MonitoredCluster(policy())
    for start in range(0, 5000, 500):
        world.report(*(signal(f"stranger-{number}") for number in range(start, start + 500)))
        world.report(*(signal("a-d0", fingerprint=str(number)) for number in range(start, start + 500)))
    assert len(world.state.causes) == 1
    (cause,) = world.state.causes.values()
    assert len(cause.firing) == causes.FINGERPRINTS_MAX


def test_rules_and_decisions_are_bounded_and_the_rest_follows():
    fast = healthpolicies.Rate(devices=100_000, seconds=60)
    world = MonitoredCluster(policy(rate=fast), listed=make_slices({"a": 1300}))
    world.report(*(signal(f"a-d{number}") for number in range(1300)))
    world.pass_(60)
    world.look()
    assert len(world.rules) == tainting.DECISIONS_MAX
    for _ in range(10):
        world.look()
    assert len(world.rules) == tainting.RULES_MAX
    assert ("Withhold", "Limit") in {(kind, reason) for kind, _, reason in summarise(world.look())}


def test_a_rule_with_the_label_that_the_monitor_did_not_make_is_left_alone():
    world = MonitoredCluster(policy())
    device = inventory.Device(DRIVER, "a", "a-d0")
    copied = document_of("mine", causes.Key("p", device), policy(), START, "None", START)
    world.foreign = [copied]
    assert world.look() == ()


@hypothesis.settings(max_examples=60, stateful_step_count=40, deadline=None)
class Anything(stateful.RuleBasedStateMachine):
    """Whatever is reported, and whenever: the invariants of the plan."""

    def __init__(self):
        super().__init__()
        self.percent = 60
        self.rate = healthpolicies.Rate(devices=2, seconds=300)
        self.hold = healthpolicies.Hold(seconds=60, times=2)
        self.clear = 120
        self.world = MonitoredCluster(
            self.make_policy("p"),
            self.make_policy("q", match_labels={"team": "b"}),
            listed=make_slices({"a": 5, "b": 3}, classes=("nvme", "gpu")),
        )
        self.actions = []
        self.lifted_at = {}
        self.tainted_at = {}

    def make_policy(self, name, **fields):
        return policy(
            name,
            **{
                "hold": self.hold,
                "clear_seconds": self.clear,
                "minimum_healthy_percent": self.percent,
                "rate": self.rate,
                "expire_seconds": 1000,
            }
            | fields,
        )

    names = strategies.sampled_from([f"{pool}-d{n}" for pool in "ab" for n in range(5)] + ["x", ""])

    @stateful.rule(
        reported=strategies.lists(
            strategies.builds(
                signal,
                names,
                firing=strategies.sampled_from([True, True, False]),
                fingerprint=strategies.sampled_from(["1", "2"]),
                team=strategies.sampled_from("ab"),
            ),
            max_size=12,
        )
    )
    def report(self, reported):
        self.world.report(*reported)

    @stateful.rule()
    def fail_everywhere(self):
        for _ in range(2):
            self.world.report(
                *(signal(f"{pool}-d{n}", fingerprint="1", team="b") for pool in "ab" for n in range(5))
            )
        self.world.pass_(60)

    @stateful.rule(seconds=strategies.sampled_from([1, 30, 60, 61, 200, 1200]))
    def wait(self, seconds):
        self.world.pass_(seconds)

    @stateful.rule(effect=strategies.sampled_from(["None", "NoSchedule", "NoExecute"]))
    def change(self, effect):
        self.world.policies["p"] = self.make_policy("p", taint=healthpolicies.Taint(effect=effect))

    @stateful.rule()
    def restart(self):
        self.world.restart()

    @stateful.rule()
    def look(self):
        world, now = self.world, self.world.now
        for decision in world.look():
            key = decision.key
            match decision:
                case tainting.Taint():
                    assert now - self.lifted_at.get(
                        key, START - datetime.timedelta(days=1)
                    ) >= datetime.timedelta(seconds=self.hold.seconds)
                    self.tainted_at[key] = now
                    self.actions.append((key.policy, now))
                case tainting.Change(is_harder=True):
                    self.actions.append((key.policy, now))
                case tainting.Lift():
                    assert now - self.tainted_at[key] >= datetime.timedelta(seconds=self.clear)
                    self.lifted_at[key] = now
        for name in world.policies:
            window = [
                moment
                for owner, moment in self.actions
                if owner == name and moment > now - datetime.timedelta(seconds=self.rate.seconds)
            ]
            assert len(window) <= self.rate.devices

    @stateful.invariant()
    def the_minimum_healthy_share_is_never_undercut(self):
        tainted = {rule.spec.device_selector.device for rule in self.world.rules.values()}
        for group in ("pool", "class"):
            members = {}
            for device, item in self.world.devices.devices.items():
                name = device.pool if group == "pool" else item.attributes["class"]
                members.setdefault(name, set()).add(device.name)
            for names in members.values():
                assert len(names - tainted) * 100 >= len(names) * self.percent

    def teardown(self):
        world = self.world
        for _ in range(4):
            world.report(
                *(
                    signal(f"{pool}-d{number}", firing=False, fingerprint=fingerprint, team="b")
                    for pool in "ab"
                    for number in range(5)
                    for fingerprint in ("1", "2")
                )
            )
            world.look()
            world.pass_(self.clear)
        world.look()
        assert world.rules == {}, "every rule is lifted once its cause is gone"


TestAnything = Anything.TestCase


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"selector": None}, id="without a selector"),
        pytest.param({"selector": taintrules.DeviceSelector(driver=DRIVER, pool="a")}, id="of a pool"),
        pytest.param(
            {"selector": taintrules.DeviceSelector(driver=DRIVER, device_class_name="x")}, id="of a class"
        ),
        pytest.param({"annotations": {}}, id="without its policy"),
    ],
)
def test_a_rule_that_others_changed_into_another_one_is_not_the_monitors(changes):
    key = causes.Key("p", inventory.Device(DRIVER, "a", "a-d0"))
    rule = document_of(tainting.rule_name(key), key, policy(), START, "None", START)
    assert tainting.own([rule], DRIVER) == {key: rule}
    assert tainting.own([rule], "other.dev") == {}
    annotations = changes.get("annotations", rule.metadata.annotations)
    selector = changes.get("selector", rule.spec.device_selector)
    other = msgspec.structs.replace(
        rule,
        metadata=msgspec.structs.replace(rule.metadata, annotations=annotations),
        spec=msgspec.structs.replace(rule.spec, device_selector=selector),
    )
    assert tainting.own([other], DRIVER) == {}


def test_a_rule_whose_annotations_were_removed_is_restored_gets_an_end_and_is_lifted():
    world = MonitoredCluster(policy())
    world.report(signal("a-d0"))
    world.pass_(60)
    world.look()
    (name,) = world.rules
    rule = world.rules[name]
    kept = {healthpolicies.POLICY_ANNOTATION: "p", healthpolicies.ACTED_ANNOTATION: "lately"}
    bare = msgspec.structs.replace(rule, metadata=msgspec.structs.replace(rule.metadata, annotations=kept))
    state = causes.restore(tainting.own([bare], DRIVER), world.policies, world.now)
    assert state.acted == {}
    decided = tainting.decide(state, world.policies, world.devices, [bare], world.now)
    assert summarise(decided.decisions) == [("Renew", "a-d0", "Repeated")]
    later = world.now + datetime.timedelta(days=1)
    decided = tainting.decide(state, world.policies, world.devices, [bare], later)
    assert summarise(decided.decisions) == [("Lift", "a-d0", "Clear")]
    gone = causes.restore(tainting.own([bare], DRIVER), {}, world.now)
    assert gone == causes.State()


def test_rules_without_a_selector_take_nothing_from_the_share_and_those_of_classes_all_they_may_select():
    def foreign(selector):
        taint = slices.Taint(key="x", effect="NoSchedule")
        return taintrules.DeviceTaintRule(
            metadata=meta.ObjectMeta(name="foreign"),
            spec=taintrules.RuleSpec(taint=taint, device_selector=selector),
        )

    for selector, expected in (
        (None, "Taint"),
        (taintrules.DeviceSelector(driver=DRIVER, pool="a", device="a-d1"), "Withhold"),
        (taintrules.DeviceSelector(driver=DRIVER, pool="a", device="gone"), "Taint"),
    ):
        world = MonitoredCluster(policy(minimum_healthy_percent=75))
        world.foreign = [foreign(selector)]
        world.report(signal("a-d0"))
        world.pass_(60)
        assert [kind for kind, _, _ in summarise(world.look())] == [expected], selector


def test_the_number_of_causes_is_bounded(monkeypatch):
    monkeypatch.setattr(causes, "CAUSES_MAX", 2)
    world = MonitoredCluster(policy())
    assert world.report(*(signal(f"a-d{number}") for number in range(4))) == {"used": 2, "limit": 2}


def test_a_dry_run_keeps_the_rules_that_exist_and_does_not_renew_them():
    world = MonitoredCluster(policy(expire_seconds=600))
    world.report(signal("a-d0"))
    world.pass_(60)
    world.look()
    world.policies["p"] = policy(expire_seconds=600, dry_run=True)
    world.pass_(500)
    world.report(signal("a-d0"))
    assert world.look() == ()
    world.report(signal("a-d0", firing=False))
    world.pass_(39)
    assert world.look() == ()


def test_a_signal_without_the_label_of_the_pool_names_no_device():
    world = MonitoredCluster(policy(device=healthpolicies.Device(pool_label="pool")))
    assert world.report(signal("a-d0")) == {"unknown-device": 1, "limit": 0}
    assert world.report(signal("a-d0", pool="a")) == {"used": 1, "limit": 0}
