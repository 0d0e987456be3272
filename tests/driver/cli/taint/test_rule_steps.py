"""The steps to a rule, and what is refused."""

import datetime

import hypothesis
import msgspec
import pytest
from hypothesis import strategies

from drawbar.driver import errors
from drawbar.driver.api import meta, slices, taintrules
from drawbar.driver.cli import objects
from drawbar.driver.cli.taint import preview, rule_steps
from drawbar.driver.kube import kinds

NOW = datetime.datetime(2026, 5, 1, 12, tzinfo=datetime.UTC)
KIND = kinds.TAINT_RULES[0]
SELECTOR = taintrules.DeviceSelector(driver="a.dev", pool="p")


def make_request(**fields):
    return rule_steps.RuleRequest(**({"name": "swap", "selector": SELECTOR} | fields))


def make_rule(effect="None", *, owner="swap", name="swap", rate=None):
    return taintrules.DeviceTaintRule(
        metadata=meta.ObjectMeta(name=name, uid="u", labels={taintrules.RULE_LABEL: owner} if owner else {}),
        spec=taintrules.RuleSpec(
            taint=slices.Taint(key=rule_steps.KEY, value="swap", effect=effect, evictions_per_second=rate),
            device_selector=SELECTOR,
        ),
    )


def make_preview(count, per_device=1):
    """Return a preview of so many pods, of which some share a device."""
    pods = tuple(
        preview.Pod(
            namespace="default",
            name=f"pod-{number}",
            uid=f"uid-{number}",
            fate=preview.Fate.EVICTED,
            claims=(f"c-{number}",),
            devices=(preview.Device("a.dev", "p", f"d{number // per_device:03}"),),
        )
        for number in range(count)
    )
    devices = tuple(sorted({device for pod in pods for device in pod.devices}))
    return preview.Preview(cluster_devices=1000, published=devices, allocated=devices, claims=(), pods=pods)


def steps(asked, before=None, seen=None, *, has_rates=False, has_batches=False):
    rule = rule_steps.document(KIND, asked, before, user="alice")
    return rule_steps.steps(
        asked, before, rule, seen or make_preview(0), has_rates=has_rates, has_batches=has_batches
    )


def kinds_of(planned):
    return [type(step).__name__ for step in planned]


def test_a_new_rule_has_effect_none_and_carries_who_why_and_until_when():
    asked = make_request(reason="new supply", until=NOW)
    (create,) = steps(asked)
    assert create.document == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {
            "name": "swap",
            "labels": {taintrules.RULE_LABEL: "swap", "app.kubernetes.io/managed-by": "drawbar"},
            "annotations": {
                taintrules.CREATED_BY_ANNOTATION: "alice",
                taintrules.REASON_ANNOTATION: "new supply",
                taintrules.EXPIRES_ANNOTATION: "2026-05-01T12:00:00Z",
            },
        },
        "spec": {
            "deviceSelector": {"driver": "a.dev", "pool": "p"},
            "taint": {"key": rule_steps.KEY, "value": "swap", "effect": "None"},
        },
    }
    stored = msgspec.convert(create.document, taintrules.DeviceTaintRule)
    assert stored.expires_at == NOW


def test_a_new_rule_has_the_taint_that_was_asked_for():
    (create,) = steps(make_request(taint=("example.com/a", "b"), effect="NoSchedule"))
    assert create.document["spec"]["taint"] == {
        "key": "example.com/a",
        "value": "b",
        "effect": "NoSchedule",
    }


def test_an_existing_rule_keeps_its_author_and_unchanged_fields():
    annotations = {
        taintrules.CREATED_BY_ANNOTATION: "bob",
        taintrules.REASON_ANNOTATION: "fan",
        taintrules.EXPIRES_ANNOTATION: "2026-05-01T12:00:00Z",
    }
    before = make_rule()
    before = msgspec.structs.replace(
        before, metadata=msgspec.structs.replace(before.metadata, annotations=annotations)
    )
    rule = rule_steps.document(KIND, make_request(effect="NoSchedule"), before, user="alice")
    assert rule["metadata"]["annotations"] == annotations
    rule = rule_steps.document(KIND, make_request(forever=True, reason="new fan"), before, user="alice")
    assert rule["metadata"]["annotations"] == {
        taintrules.CREATED_BY_ANNOTATION: "bob",
        taintrules.REASON_ANNOTATION: "new fan",
    }
    (change,) = steps(make_request(forever=True), before)
    assert change.content == {"metadata": {"annotations": {taintrules.EXPIRES_ANNOTATION: None}}}


def test_few_pods_are_evicted_by_the_rule_itself():
    (change, wait) = steps(make_request(effect="NoExecute"), make_rule(), make_preview(10))
    assert change.content == {"spec": {"taint": {"effect": "NoExecute"}}}
    assert len(wait.pods) == 10
    assert kinds_of(steps(make_request(effect="NoExecute"), None, make_preview(0))) == ["Create"]


def test_more_pods_are_evicted_in_batches_while_the_rule_keeps_further_pods_away():
    planned = steps(make_request(effect="NoExecute", batch=2, reason="fan"), None, make_preview(5))
    assert kinds_of(planned) == ["Create", "Evict", "Evict", "Evict", "Change", "Await", "DeleteBatches"]
    assert planned[0].document["spec"]["taint"]["effect"] == "NoSchedule"
    rules = [document for step in planned[1:4] for document in step.documents]
    assert len({rule["metadata"]["name"] for rule in rules}) == 5
    for rule in rules:
        assert rule["spec"]["taint"] == {"key": rule_steps.KEY, "value": "swap", "effect": "NoExecute"}
        assert rule["metadata"]["labels"][taintrules.RULE_LABEL] == "swap"
        assert rule["metadata"]["annotations"][taintrules.REASON_ANNOTATION] == "fan"
        assert set(rule["spec"]["deviceSelector"]) == {"driver", "pool", "device"}
    assert planned[4].content == {"spec": {"taint": {"effect": "NoExecute"}}}
    assert len(planned[5].pods) == 5


def test_a_rate_goes_into_the_rule_where_the_api_has_it():
    (create, _) = steps(make_request(effect="NoExecute", rate=3), None, make_preview(30), has_rates=True)
    assert create.document["spec"]["taint"]["evictionsPerSecond"] == 3
    (change, _) = steps(make_request(effect="NoExecute"), make_rule(), make_preview(30), has_rates=True)
    assert change.content["spec"]["taint"] == {"effect": "NoExecute", "evictionsPerSecond": rule_steps.RATE}
    (change, _) = steps(
        make_request(effect="NoExecute", rate=3),
        make_rule("NoExecute", rate=5),
        make_preview(30),
        has_rates=True,
    )
    assert change.content["spec"]["taint"] == {"evictionsPerSecond": 3}
    assert kinds_of(
        steps(
            make_request(effect="NoExecute"), make_rule("NoExecute", rate=5), make_preview(30), has_rates=True
        )
    ) == ["Await"]


def test_requested_batches_are_used_even_if_the_api_has_rates():
    planned = steps(make_request(effect="NoExecute", batch=10), None, make_preview(30), has_rates=True)
    assert rule_steps.batch_count(planned) == 3
    assert {step.seconds for step in planned if isinstance(step, rule_steps.Evict)} == {0.0}
    assert "evictionsPerSecond" not in planned[0].document["spec"]["taint"]


def test_without_an_api_for_it_a_rate_is_a_batch_per_second():
    planned = steps(make_request(effect="NoExecute", rate=15), None, make_preview(30))
    assert [(step.seconds, len(step.pods)) for step in planned if isinstance(step, rule_steps.Evict)] == [
        (1.0, 15)
    ] * 2


def test_pods_that_tolerate_the_taint_for_a_time_are_waited_for_and_in_no_batch():
    seen = make_preview(4)
    patient = msgspec.structs.replace(seen.pods[3], fate=preview.Fate.LATER, after_seconds=30)
    seen = msgspec.structs.replace(seen, pods=(*seen.pods[:3], patient))
    planned = steps(make_request(effect="NoExecute", batch=2), None, seen)
    in_batches = [uid for step in planned if isinstance(step, rule_steps.Evict) for uid in step.pods]
    assert sorted(in_batches) == ["uid-0", "uid-1", "uid-2"]
    (wait,) = [step for step in planned if isinstance(step, rule_steps.Await)]
    assert patient.uid in wait.pods


def test_a_repeated_command_continues_an_interrupted_one():
    planned = steps(
        make_request(effect="NoExecute", batch=2), make_rule("NoSchedule"), make_preview(4), has_batches=True
    )
    assert kinds_of(planned) == ["Evict", "Evict", "Change", "Await", "DeleteBatches"]
    planned = steps(
        make_request(effect="NoExecute", batch=2), make_rule("NoExecute"), make_preview(4), has_batches=True
    )
    assert kinds_of(planned) == ["Await", "DeleteBatches"]


def test_a_lesser_effect_ends_the_batches():
    planned = steps(make_request(effect="None"), make_rule("NoSchedule"), make_preview(4), has_batches=True)
    assert kinds_of(planned) == ["Change", "DeleteBatches"]


def test_a_rule_that_is_so_already_needs_no_step():
    assert steps(make_request(effect="NoSchedule"), make_rule("NoSchedule"), make_preview(4)) == ()


def test_only_the_end_of_a_rule_changes():
    (change,) = steps(make_request(until=NOW), make_rule("NoSchedule"))
    assert change.content == {
        "metadata": {"annotations": {taintrules.EXPIRES_ANNOTATION: "2026-05-01T12:00:00Z"}}
    }


@hypothesis.given(
    pods=strategies.integers(0, 40),
    per_device=strategies.integers(1, 4),
    size=strategies.integers(1, 12),
    before=strategies.sampled_from([None, "None", "NoSchedule", "NoExecute"]),
    effect=strategies.sampled_from(rule_steps.EFFECTS),
    has_rates=strategies.booleans(),
)
def test_no_pod_is_evicted_before_its_batch_and_its_device_is_kept_from_others_meanwhile(
    pods, per_device, size, before, effect, has_rates
):
    rule = make_rule(before) if before is not None else None
    planned = steps(
        make_request(effect=effect, batch=size), rule, make_preview(pods, per_device), has_rates=has_rates
    )
    current, gone = before, set()
    for step in planned:
        match step:
            case rule_steps.Create(document=document):
                assert current is None
                current = document["spec"]["taint"]["effect"]
            case rule_steps.Change(content=content):
                current = content["spec"]["taint"]["effect"]
                if current == "NoExecute" and rule_steps.batch_count(planned):
                    assert len(gone) == pods
            case rule_steps.Evict():
                assert current == "NoSchedule"
                assert len(step.pods) <= max(size, per_device)
                assert not gone & step.pods
                gone |= step.pods
            case rule_steps.Await():
                assert current == "NoExecute"
            case rule_steps.DeleteBatches():
                assert current == effect
    assert current == effect


@pytest.mark.parametrize(
    ("asked", "before", "words"),
    [
        pytest.param(make_request(name="Not a name"), None, "not the name of a rule", id="name"),
        pytest.param(make_request(name="a" * 51), None, "at most 50", id="long name"),
        pytest.param(
            make_request(selector=taintrules.DeviceSelector()), None, "nothing is selected", id="nothing"
        ),
        pytest.param(make_request(every=True), None, "leave out KIND/NAME", id="all and some"),
        pytest.param(make_request(reason="x" * 1025), None, "shorten it", id="reason"),
        pytest.param(make_request(rate=1, batch=1), None, "do not go together", id="rate and batch"),
        pytest.param(
            make_request(selector=taintrules.DeviceSelector(), every=True),
            make_rule(),
            "another selector",
            id="all in place of some",
        ),
        pytest.param(
            make_request(taint=(rule_steps.KEY, "other")),
            make_rule(),
            "another selector or taint",
            id="value",
        ),
        pytest.param(
            make_request(taint=("other", "")), make_rule(), "another selector or taint", id="other taint"
        ),
        pytest.param(
            make_request(selector=taintrules.DeviceSelector(device="d")),
            make_rule(),
            "another selector",
            id="selector",
        ),
        pytest.param(make_request(), make_rule(owner=None), "was not made by", id="foreign"),
        pytest.param(make_request(), make_rule(owner="other"), "batch of other", id="batch"),
    ],
)
def test_impossible_requests_are_refused_with_a_sentence(asked, before, words):
    with pytest.raises(errors.UsageError, match=words):
        rule_steps.check(asked, before)


def test_values_of_the_maximum_length_are_accepted():
    rule_steps.check(
        make_request(name="a" * rule_steps.NAME_CHARS_MAX, reason="x" * rule_steps.REASON_CHARS_MAX), None
    )
    furthest = NOW + datetime.timedelta(days=rule_steps.UNTIL_DAYS_MAX)
    assert rule_steps.moment(f"{rule_steps.UNTIL_DAYS_MAX}d", NOW) == furthest


def test_a_taint_is_a_key_and_perhaps_a_value():
    assert rule_steps.taint("example.com/a") == ("example.com/a", "")
    assert rule_steps.taint("example.com/a=b") == ("example.com/a", "b")
    with pytest.raises(ValueError, match="give KEY"):
        rule_steps.taint("=b")


def test_a_selector_that_matches_every_device_is_refused_without_all():
    seen = preview.Preview(
        cluster_devices=2,
        published=(preview.Device("a.dev", "p", "d1"), preview.Device("a.dev", "p", "d2")),
        allocated=(),
        claims=(),
        pods=(),
    )
    with pytest.raises(errors.UsageError, match="all 2 devices"):
        rule_steps.check_breadth(make_request(), seen, allow_empty=False)
    for narrow in (
        make_request(selector=taintrules.DeviceSelector(), every=True),
        make_request(selector=SELECTOR, every=True),
        make_request(selector=taintrules.DeviceSelector(device="d1")),
        # A rule that exists and keeps its selector.
        make_request(selector=taintrules.DeviceSelector()),
    ):
        rule_steps.check_breadth(narrow, seen, allow_empty=False)
    rule_steps.check(make_request(selector=taintrules.DeviceSelector(), every=True), None)


@pytest.mark.parametrize(
    ("content", "hours"), [("90m", 1.5), ("2h", 2), ("1d", 24), ("2026-05-01T16:00:00+02:00", 2)]
)
def test_an_end_is_a_span_or_a_time(content, hours):
    assert rule_steps.moment(content, NOW) == NOW + datetime.timedelta(hours=hours)


@pytest.mark.parametrize(
    "content", ["", "2", "h", "2w", "2026-05-01T14:00:00", "2026-05-01T11:00:00Z", "0s", "400d", "999999d"]
)
def test_an_end_that_is_none_is_refused(content):
    with pytest.raises(ValueError, match="give"):
        rule_steps.moment(content, NOW)


def test_a_rule_goes_before_its_batches():
    rules = [make_rule(name="a-batch"), make_rule(), make_rule(owner=None, name="other")]
    assert [rule.metadata.name for rule in rule_steps.select_rules("swap", rules)] == ["swap", "a-batch"]
    assert [rule.metadata.name for rule in rule_steps.select_rules("other", rules)] == ["other"]
    with pytest.raises(objects.Missing, match="taint list"):
        rule_steps.select_rules("none", rules)
