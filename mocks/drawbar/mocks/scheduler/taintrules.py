"""DeviceTaintRules: an administrator's taints on devices of any driver. Pure.

A rule's selector names driver, pool and device, each optionally. The empty selector `{}` selects every device of the
cluster; a missing selector selects none. For the scheduler a rule's taint is the same as a driver's own.

Source: API reference, `resource.k8s.io` DeviceTaintRule; resource slice tracker of
`k8s.io/dynamic-resource-allocation`.
"""

from collections.abc import Iterable, Sequence

import msgspec

from drawbar.mocks.claims import documents
from drawbar.mocks.kube import meta
from drawbar.mocks.scheduler import objects


class DeviceSelector(meta.Struct, frozen=True):
    """A selection of devices; absent fields match all."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class RuleSpec(meta.Struct, frozen=True):
    """The content of a rule."""

    taint: objects.Taint
    device_selector: DeviceSelector | None = None


class RuleCondition(meta.Condition, frozen=True):
    """A condition, with the rule's observed generation."""

    observed_generation: int = 0


class RuleStatus(meta.Struct, frozen=True):
    """The eviction controller's status of a rule."""

    conditions: tuple[RuleCondition, ...] = ()


class Rule(meta.Struct, frozen=True):
    """A DeviceTaintRule."""

    metadata: meta.ObjectMeta
    spec: RuleSpec
    status: RuleStatus = RuleStatus()


def selects(rule: Rule, device: documents.DeviceID) -> bool:
    """Return true if the rule selects the device."""
    selector = rule.spec.device_selector
    if selector is None:
        return False
    wanted = (selector.driver, selector.pool, selector.device)
    return all(want is None or want == have for want, have in zip(wanted, device, strict=True))


def taint_slices(slices: Iterable[objects.Slice], rules: Sequence[Rule]) -> list[objects.Slice]:
    """Return the slices with the rules' taints after the drivers' own, rules sorted by name."""
    ordered = sorted(rules, key=lambda rule: rule.metadata.name)
    return [_taint_slice(item, ordered) for item in slices]


def _taint_slice(item: objects.Slice, rules: Sequence[Rule]) -> objects.Slice:
    devices = tuple(_with_taints(device, item.spec, rules) for device in item.spec.devices)
    if devices == item.spec.devices:
        return item
    return msgspec.structs.replace(item, spec=msgspec.structs.replace(item.spec, devices=devices))


def _with_taints(device: objects.Device, spec: objects.SliceSpec, rules: Sequence[Rule]) -> objects.Device:
    identity = (spec.driver, spec.pool.name, device.name)
    added = tuple(rule.spec.taint for rule in rules if selects(rule, identity))
    return msgspec.structs.replace(device, taints=(*device.taints, *added)) if added else device
