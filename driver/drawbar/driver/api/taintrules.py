"""DeviceTaintRules: an administrator's taints on devices of any driver.

A selector names driver, pool and device, each of them or none: `{}` is every device of the cluster, no selector is
none. Up to 1.34 a rule may select by device class and expressions as well; Drawbar does not compute the selection of
such a rule.

A rule of Drawbar has the label `RULE_LABEL` with the administrator's name for it. Rules of batches, which evict pods
of one device before the rule itself does, have the same label and other names.

Source: `resource.k8s.io` `v1alpha3`, `v1beta2` and `v1` DeviceTaintRule, which do not differ in the fields used here.
"""

import datetime
from collections.abc import Mapping
from typing import Any

import msgspec

from drawbar.driver.api import meta, slices

RULE_LABEL = "drawbar.dev/taint-rule"
CREATED_BY_ANNOTATION = "drawbar.dev/created-by"
REASON_ANNOTATION = "drawbar.dev/reason"
EXPIRES_ANNOTATION = "drawbar.dev/expires-at"
"""When the leading controller deletes the rule, as RFC 3339; on rules with the label alone."""

MANAGED_BY = {"app.kubernetes.io/managed-by": "drawbar"}

EVICTION_CONDITION = "EvictionInProgress"


class DeviceSelector(meta.Struct, frozen=True):
    """A selector of devices; absent fields match all.

    Attributes:
        device_class_name: in releases up to 1.34.
        selectors: expressions, in releases up to 1.34.
    """

    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    device_class_name: str | None = None
    selectors: tuple[Any, ...] = ()

    @property
    def is_computable(self) -> bool:
        """Return whether the selector has no other parts than driver, pool and device."""
        return self.device_class_name is None and not self.selectors

    @property
    def is_empty(self) -> bool:
        """Return whether the selector selects every device of the cluster."""
        return self.is_computable and self.driver is None and self.pool is None and self.device is None

    def selects(self, driver: str, pool: str, device: str) -> bool:
        """Return whether a device is selected, as far as driver, pool and device decide that."""
        wanted = ((self.driver, driver), (self.pool, pool), (self.device, device))
        return all(want is None or want == have for want, have in wanted)


class RuleSpec(meta.Struct, frozen=True):
    """The content of a rule."""

    taint: slices.Taint
    device_selector: DeviceSelector | None = None


class RuleStatus(meta.Struct, frozen=True):
    """The report of the cluster's eviction controller."""

    conditions: tuple[meta.Condition, ...] = ()


class DeviceTaintRule(meta.Struct, frozen=True):
    """A rule."""

    metadata: meta.ObjectMeta
    spec: RuleSpec
    status: RuleStatus = RuleStatus()

    @property
    def owner(self) -> str | None:
        """Return the administrator's name for the rule, or for the original rule of a batch; None without our label."""
        return self.metadata.labels.get(RULE_LABEL)

    @property
    def is_batch(self) -> bool:
        """Return whether this rule evicts a batch of another rule's devices."""
        return self.owner not in (None, self.metadata.name)

    @property
    def expires_at(self) -> datetime.datetime | None:
        """Return the end of the rule; None if there is no end, or if it cannot be read.

        Only rules with the label end by themselves: the annotation does not suffice to delete a rule.
        """
        written = self.metadata.annotations.get(EXPIRES_ANNOTATION)
        return meta.moment(written) if self.owner is not None else None


def document(
    api_version: str,
    name: str,
    selector: DeviceSelector,
    taint: slices.Taint,
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
) -> dict[str, Any]:
    """Return a rule of Drawbar's own to create; `labels` and `annotations` are further ones."""
    optional: dict[str, Any] = {"value": taint.value} if taint.value else {}
    if taint.evictions_per_second is not None:
        optional["evictionsPerSecond"] = taint.evictions_per_second
    return {
        "apiVersion": api_version,
        "kind": "DeviceTaintRule",
        "metadata": {
            "name": name,
            "labels": {RULE_LABEL: name, **MANAGED_BY, **labels},
            "annotations": dict(annotations),
        },
        "spec": {
            "deviceSelector": msgspec.to_builtins(selector),
            "taint": {"key": taint.key, "effect": taint.effect} | optional,
        },
    }
