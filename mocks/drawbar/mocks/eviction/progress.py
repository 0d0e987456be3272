"""The condition `EvictionInProgress` in a DeviceTaintRule's status. Pure.

With the effect None the condition is a preview: the effect of NoExecute, counted once. The sentences are those of the
real controller, as `kubectl describe devicetaintrule` shows them.

Source: pkg/controller/devicetainteviction of Kubernetes 1.36, as described by the fact pages.
"""

import datetime
from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from drawbar.mocks.claims import documents
from drawbar.mocks.eviction import plan
from drawbar.mocks.kube import meta
from drawbar.mocks.scheduler import taintrules

CONDITION = "EvictionInProgress"
NOTHING_SELECTED = plan.Selection(published=0, allocated=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The counts for a rule.

    Attributes:
        pending: pods that must be evicted, or with the effect None would have to be.
        evicted: the number of pods evicted because of the rule since the controller started.
        selection: the devices that the rule selects.
    """

    pending: Collection[documents.Document] = ()
    evicted: int = 0
    selection: plan.Selection = NOTHING_SELECTED


def pause(rule: taintrules.Rule, *, now: datetime.datetime, period_seconds: float) -> float:
    """Return the seconds until the rule's status may be written again; 0 if it may be now."""
    held = _find_condition(rule)
    if held is None or held.observed_generation != rule.metadata.generation:
        return 0.0
    written = meta.moment(held.last_transition_time)
    return max(0.0, period_seconds - (now - written).total_seconds()) if written is not None else 0.0


def condition(
    rule: taintrules.Rule, findings: Findings, *, now: datetime.datetime
) -> taintrules.RuleCondition | None:
    """Return the condition to write; None if the rule has it already.

    Unlike with other conditions the transition time is that of the last change of any kind.
    """
    reason, message = _words(rule, findings)
    if findings.evicted:
        message = f"{message} {_format_count(findings.evicted, 'pod')} evicted since starting the controller.".strip()
    fresh = taintrules.RuleCondition(
        type=CONDITION,
        status="True" if reason == "PodsPendingEviction" else "False",
        reason=reason,
        message=message,
        observed_generation=rule.metadata.generation,
        last_transition_time=meta.timestamp(now),
    )
    held = _find_condition(rule)
    same = held is not None and msgspec.structs.replace(held, last_transition_time=fresh.last_transition_time)
    return None if same == fresh else fresh


def _words(rule: taintrules.Rule, findings: Findings) -> tuple[str, str]:
    spaces = len({pod.metadata.namespace for pod in findings.pending})
    where = "1 namespace" if spaces == 1 else f"{spaces} different namespaces"
    pods = _format_count(len(findings.pending), "pod")
    match rule.spec.taint.effect:
        case plan.NO_EXECUTE if findings.pending:
            need = "needs" if len(findings.pending) == 1 else "need"
            return "PodsPendingEviction", f"{pods} {need} to be evicted in {where}."
        case plan.NO_EXECUTE:
            return ("Completed" if findings.evicted else "NotStarted"), ""
        case "None":
            published = _format_count(findings.selection.published, "published device")
            allocated = _format_count(findings.selection.allocated, "allocated device")
            return "NoEffect", (
                f"{published} selected. {allocated} selected. {pods} would be evicted in {where} if the effect was "
                "NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an "
                "update."
            )
        case _:
            return "OtherEffect", "Eviction only happens for the NoExecute effect."


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _find_condition(rule: taintrules.Rule) -> taintrules.RuleCondition | None:
    return next((item for item in rule.status.conditions if item.type == CONDITION), None)
