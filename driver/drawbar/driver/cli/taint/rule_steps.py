"""The steps from no rule, or a rule with another effect, to the administrator's rule; pure.

Some API servers have no rate of evictions. Then a rule that would evict more pods than a batch gets its effect in
steps. It has the effect NoSchedule, so that no further pod gets the devices. Meanwhile rules of one device each evict
batch by batch. Then it gets the effect NoExecute itself, and the rules of the batches are deleted.

Invariants after any step: no pod is evicted before its batch has begun; while a batch is evicted, the rule keeps its
devices from other pods; a batch's rule is deleted only once the rule itself evicts, or once the administrator ends the
eviction. Each step may be repeated, so an interrupted command can be given again.
"""

import datetime
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from drawbar.driver import errors
from drawbar.driver.api import dnsnames, meta, slices, taintrules
from drawbar.driver.cli import objects
from drawbar.driver.cli.doctor import findings
from drawbar.driver.cli.taint import observed, preview
from drawbar.driver.kube import kinds
from drawbar.driver.slices import encoding

EFFECTS = (encoding.NO_EFFECT, encoding.NO_SCHEDULE, encoding.NO_EXECUTE)
_NOTHING = taintrules.DeviceSelector()
KEY = "drawbar.dev/administrator"
"""The default key of a taint; its default value is the rule's name."""
RATE = 10
"""Pods per second, as in KEP-5055."""
NAME_CHARS_MAX = 50
"""Short enough for a label value, and for the names of batches."""
REASON_CHARS_MAX = 1024
UNTIL_DAYS_MAX = 366
_SPAN = re.compile(r"(\d{1,6})(s|m|h|d)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class RuleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The administrator's request; an option is None if it was not given.

    Attributes:
        selector: without any field if none was given.
        every: whether all devices of the cluster are selected.
        taint: key and value.
        until: the end of the rule.
        forever: whether the rule loses its end.
        rate: pods per second.
        batch: pods at a time.
    """

    name: str
    selector: taintrules.DeviceSelector = _NOTHING
    every: bool = False
    taint: tuple[str, str] | None = None
    effect: str | None = None
    reason: str | None = None
    until: datetime.datetime | None = None
    forever: bool = False
    rate: int | None = None
    batch: int | None = None


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """Create the rule."""

    document: dict[str, Any]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Merge this into the rule."""

    content: dict[str, Any]


class Evict(msgspec.Struct, frozen=True, kw_only=True):
    """Create the rules of a batch, and wait until its pods are gone.

    Attributes:
        number: the batch's number, from 1 on.
        pods: the UIDs of its pods.
        seconds: the shortest duration of the batch.
    """

    number: int
    documents: tuple[dict[str, Any], ...]
    pods: frozenset[str]
    seconds: float


class Await(msgspec.Struct, frozen=True, kw_only=True):
    """Wait until these pods, by UID, are gone."""

    pods: frozenset[str]


class DeleteBatches(msgspec.Struct, frozen=True, kw_only=True):
    """Delete the rules of batches."""


Step = Create | Change | Evict | Await | DeleteBatches


def moment(content: str, now: datetime.datetime) -> datetime.datetime:
    """Return the time for a span such as `2h`, or for a time as RFC 3339.

    Raises:
        ValueError: it is neither, or past, or too far ahead.
    """
    if (span := _SPAN.fullmatch(content)) is not None:
        end = now + datetime.timedelta(**{_UNITS[span[2]]: int(span[1])})
    else:
        named = meta.moment(content)
        if named is None:
            raise ValueError(
                "give a span such as 30m, 2h or 1d, or a time with its zone such as 2027-01-31T18:00:00Z"
            )
        end = named
    if not now < end <= now + datetime.timedelta(days=UNTIL_DAYS_MAX):
        raise ValueError(f"give a time within the next {UNTIL_DAYS_MAX} days")
    return end


def taint(content: str) -> tuple[str, str]:
    """Return key and value of a taint in the form `KEY` or `KEY=VALUE`.

    Raises:
        ValueError: it has neither form.
    """
    key, _, value = content.partition("=")
    if not key:
        raise ValueError("give KEY or KEY=VALUE")
    return key, value


def resolve(selector: taintrules.DeviceSelector, snapshot: observed.Snapshot) -> taintrules.DeviceSelector:
    """Return the selector with driver and pool if it names a pool or a device.

    Otherwise the rule would select devices of that name of any driver and pool, now or later. If the selector selects
    no device, it is returned unchanged.

    Raises:
        errors.DrawbarError: devices of several drivers or pools have the name.
    """
    if selector.pool is None and selector.device is None:
        return selector
    pools = sorted({(device.driver, device.pool) for device in preview.find_devices(selector, snapshot)})
    if not pools:
        return selector
    if len(pools) > 1:
        if selector.device is None:
            drivers = findings.join_names([f"--driver-name {driver}" for driver, _ in pools])
            raise errors.DrawbarError(f"several drivers have a pool {selector.pool}: add one of {drivers}")
        shared = Counter(pool for _, pool in pools)
        full_names = [
            f"device/{pool}/{selector.device}" + (f" --driver-name {driver}" if shared[pool] > 1 else "")
            for driver, pool in pools
        ]
        raise errors.DrawbarError(
            f"there are several devices {selector.device}: give one of {findings.join_names(full_names)}"
        )
    ((driver, pool),) = pools
    return msgspec.structs.replace(selector, driver=driver, pool=pool)


def check(request: RuleRequest, existing: taintrules.DeviceTaintRule | None) -> None:
    """Refuse an invalid request.

    Raises:
        errors.UsageError: the name or reason is invalid, options contradict each other, nothing is selected, or the
            existing rule is another.
    """
    if not dnsnames.is_label(request.name, NAME_CHARS_MAX):
        raise errors.UsageError(
            f"{request.name!r} is not the name of a rule; use at most {NAME_CHARS_MAX} lower-case letters, digits and hyphens"
        )
    if request.reason is not None and len(request.reason) > REASON_CHARS_MAX:
        raise errors.UsageError(f"the reason has more than {REASON_CHARS_MAX} characters; shorten it")
    if request.rate is not None and request.batch is not None:
        raise errors.UsageError("--rate and --batch do not go together; leave one out")
    if request.every and not request.selector.is_empty:
        raise errors.UsageError(
            "--all selects every device of the cluster; leave out KIND/NAME, --driver-name, --pool and --device"
        )
    if existing is None:
        if request.selector.is_empty and not request.every:
            raise errors.UsageError(
                "nothing is selected; give device/POOL/NAME or enclosure/FABRIC/NAME, or --all for every device of the cluster"
            )
        return
    _check_existing(request, existing)


def _check_existing(request: RuleRequest, existing: taintrules.DeviceTaintRule) -> None:
    name, spec = existing.metadata.name, existing.spec
    if existing.owner is None:
        raise errors.UsageError(
            f"DeviceTaintRule {name} exists and was not made by `drawbar taint`; choose another name, or use `kubectl edit`"
        )
    if existing.is_batch:
        raise errors.UsageError(f"DeviceTaintRule {name} is a batch of {existing.owner}; use that name")
    another = (not request.selector.is_empty or request.every) and request.selector != spec.device_selector
    if another or (request.taint is not None and request.taint != (spec.taint.key, spec.taint.value)):
        raise errors.UsageError(
            f"DeviceTaintRule {name} exists with another selector or taint; leave these options out to change its effect, "
            f"or remove it first: `drawbar taint remove {name}`"
        )


def check_breadth(request: RuleRequest, seen: preview.Preview, *, allow_empty: bool) -> None:
    """Refuse a selector that selects every published device, or none, unless the options allow that.

    A selector of no present device must name driver and pool, since it would select later devices of any.

    Raises:
        errors.UsageError: the selector is refused.
    """
    selector = request.selector
    if not seen.published and not seen.allocated and not selector.is_empty:
        if not allow_empty:
            raise objects.Missing(
                "the selector selects no device of the cluster: drawbar status --all lists devices with their pools; "
                "--allow-empty creates the rule for devices that come later"
            )
        if selector.driver is None or (selector.device is not None and selector.pool is None):
            pool = selector.pool or "POOL"
            name = f"device/{pool}/{selector.device}" if selector.device is not None else f"--pool {pool}"
            raise errors.UsageError(
                f"the selector selects no device of the cluster, and later ones of any driver and pool: "
                f"give --allow-empty {name} --driver-name {selector.driver or 'NAME'}"
            )
    if (
        seen.selects_all
        and not request.every
        and request.selector.device is None
        and not request.selector.is_empty
    ):
        raise errors.UsageError(
            f"the selector selects all {seen.cluster_devices} devices of the cluster; narrow it, or give --all in its place"
        )


def document(
    kind: kinds.Kind, request: RuleRequest, existing: taintrules.DeviceTaintRule | None, *, user: str
) -> dict[str, Any]:
    """Return the final rule, without a rate.

    Args:
        kind: the kind DeviceTaintRule in its version.
        request: a request that passed `check`.
        existing: the rule of this name, or None; a new rule gets the effect None unless one was requested.
        user: the author of the request.
    """
    if existing is None:
        key, value = request.taint or (KEY, request.name)
        selector, effect, before = request.selector, request.effect or encoding.NO_EFFECT, {}
    else:
        taint = existing.spec.taint
        key, value, effect = taint.key, taint.value, request.effect or taint.effect
        selector = existing.spec.device_selector or taintrules.DeviceSelector()
        before = existing.metadata.annotations
    annotations = {taintrules.CREATED_BY_ANNOTATION: user, **before, **_annotations(request)}
    return taintrules.document(
        kind.api_version,
        request.name,
        selector,
        slices.Taint(key=key, value=value, effect=effect),
        labels={},
        annotations={name: content for name, content in annotations.items() if content is not None},
    )


def set_rate(rule: dict[str, Any], rate: int) -> dict[str, Any]:
    """Return the rule with a rate of evictions."""
    return _replace_taint(rule, evictionsPerSecond=rate)


def _annotations(request: RuleRequest) -> dict[str, str | None]:
    changed: dict[str, str | None] = {}
    if request.reason is not None:
        changed[taintrules.REASON_ANNOTATION] = request.reason
    if request.until is not None:
        changed[taintrules.EXPIRES_ANNOTATION] = meta.timestamp(request.until)
    elif request.forever:
        changed[taintrules.EXPIRES_ANNOTATION] = None
    return changed


def steps(
    request: RuleRequest,
    existing: taintrules.DeviceTaintRule | None,
    rule: dict[str, Any],
    seen: preview.Preview,
    *,
    has_rates: bool,
    has_batches: bool,
) -> tuple[Step, ...]:
    """Return the steps to the requested rule.

    Args:
        request: a request that passed `check`.
        existing: the rule of this name, or None.
        rule: the result of `document`.
        seen: the effects of the rule.
        has_rates: whether the API server keeps a rate of evictions.
        has_batches: whether rules of batches exist, from an interrupted command.
    """
    evicts = rule["spec"]["taint"]["effect"] == encoding.NO_EXECUTE
    before = existing.spec.taint if existing is not None else None
    evicted_before = before is not None and before.effect == encoding.NO_EXECUTE
    batches: tuple[Evict, ...] = ()
    if evicts and has_rates and request.batch is None:
        rule = set_rate(
            rule, request.rate or (before.evictions_per_second if before is not None else None) or RATE
        )
    elif evicts and not evicted_before:
        batches = _batches(request, rule, seen)
    first = _replace_taint(rule, effect=encoding.NO_SCHEDULE) if batches else rule
    planned: list[Step] = []
    if existing is None:
        planned.append(Create(document=first))
    elif content := _changes(existing, request, first):
        planned.append(Change(content=content))
    planned += batches
    if batches:
        planned.append(Change(content={"spec": {"taint": {"effect": encoding.NO_EXECUTE}}}))
    if evicts and seen.evicted:
        planned.append(Await(pods=frozenset(pod.uid for pod in seen.evicted)))
    if batches or has_batches:
        planned.append(DeleteBatches())
    return tuple(planned)


def _changes(
    existing: taintrules.DeviceTaintRule, request: RuleRequest, rule: dict[str, Any]
) -> dict[str, Any]:
    """Return the content to merge into a rule; empty if nothing changes."""
    before = existing.spec.taint
    was = {"effect": before.effect, "evictionsPerSecond": before.evictions_per_second}
    taint = {name: rule["spec"]["taint"].get(name) for name in was}
    taint = {name: value for name, value in taint.items() if value is not None and value != was[name]}
    annotations = {
        name: value
        for name, value in _annotations(request).items()
        if existing.metadata.annotations.get(name) != value
    }
    content: dict[str, Any] = {"metadata": {"annotations": annotations}} if annotations else {}
    return content | ({"spec": {"taint": taint}} if taint else {})


def _batches(request: RuleRequest, rule: dict[str, Any], seen: preview.Preview) -> tuple[Evict, ...]:
    """Return the batches; empty if all pods may go at once."""
    size = request.batch or request.rate or RATE
    divided = preview.batches(seen.find_pods(preview.Fate.EVICTED), size)
    if len(divided) < 2:
        return ()
    return tuple(
        Evict(
            number=number,
            documents=tuple(_make_batch_rule(rule, device) for device in batch.devices),
            pods=batch.pods,
            seconds=0.0 if request.batch is not None else 1.0,
        )
        for number, batch in enumerate(divided, start=1)
    )


def _replace_taint(rule: dict[str, Any], **fields: Any) -> dict[str, Any]:
    spec = rule["spec"]
    return rule | {"spec": spec | {"taint": spec["taint"] | fields}}


def _make_batch_rule(rule: dict[str, Any], device: preview.Device) -> dict[str, Any]:
    digest = hashlib.sha256(str(device).encode()).hexdigest()[:10]
    metadata = rule["metadata"]
    selector = {"driver": device.driver, "pool": device.pool, "device": device.name}
    return rule | {
        "metadata": {
            "name": f"{metadata['name']}-{digest}",
            "labels": metadata["labels"],
            "annotations": metadata["annotations"],
        },
        "spec": {
            "deviceSelector": selector,
            "taint": rule["spec"]["taint"],
        },
    }


def select_rules(
    name: str, rules: Iterable[taintrules.DeviceTaintRule]
) -> tuple[taintrules.DeviceTaintRule, ...]:
    """Return the rules to delete for a name: the rule first, which ends a command that still makes batches, then its batches.

    Raises:
        objects.Missing: there is no such rule.
    """
    mine = [rule for rule in rules if name in (rule.metadata.name, rule.owner)]
    if not mine:
        raise objects.Missing(
            f"there is no DeviceTaintRule {name}; `drawbar taint list` shows those that exist"
        )
    return tuple(sorted(mine, key=lambda rule: (rule.metadata.name != name, rule.metadata.name)))


def ask_removal(name: str, chosen: Sequence[taintrules.DeviceTaintRule]) -> str:
    """Return the question before the rules of this name are deleted."""
    batches = sum(rule.is_batch for rule in chosen)
    also = f" and {count_noun(batches, 'batch rule')}" if batches else ""
    has_evicted = any(rule.spec.taint.effect == encoding.NO_EXECUTE for rule in chosen)
    return f"Delete the DeviceTaintRule {name}{also}?" + (
        " Evicted pods do not come back." if has_evicted else ""
    )


def sentence(step: Step, rule: str) -> str:
    """Return the description of a step."""
    match step:
        case Create(document=document):
            return f"create DeviceTaintRule {rule} with effect {document['spec']['taint']['effect']}"
        case Change(content=content):
            effect = content.get("spec", {}).get("taint", {}).get("effect")
            what = f"effect {effect}" if effect else "other annotations"
            return f"give DeviceTaintRule {rule} {what}"
        case Evict(number=number, documents=documents, pods=pods):
            return f"batch {number}: evict {count_noun(len(pods), 'pod')} of {count_noun(len(documents), 'device')}, and wait until they are gone"
        case Await(pods=pods):
            return (
                f"wait until {count_noun(len(pods), 'pod')} are gone"
                if len(pods) != 1
                else "wait until 1 pod is gone"
            )
        case DeleteBatches():
            return "delete the rules of batches"


def count_noun(number: int, noun: str) -> str:
    """Return a number and its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def batch_count(planned: Sequence[Step]) -> int:
    """Return the number of batches."""
    return sum(isinstance(step, Evict) for step in planned)
