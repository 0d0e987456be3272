"""The output of `drawbar taint`, as tables and as documents; pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rich import console

from drawbar.driver.api import meta, slices, taintrules
from drawbar.driver.cli import tables
from drawbar.driver.cli.taint import observed, preview, rule_steps
from drawbar.driver.slices import encoding

EXAMPLES = 5
"""The most rows in a table of devices or pods; the documents have all of them."""

FATES = {
    "evicted": "is evicted",
    "stays": "stays",
    "later": "is evicted after {afterSeconds} s",
    "tolerates": "stays: it tolerates the taint",
    "extended-resource": "stays: Kubernetes does not evict pods with extended resources",
}
EVICTIONS = {
    "PodsPendingEviction": "in progress",
    "Completed": "done",
    "NotStarted": "no pod so far",
    "NoEffect": "none",
    "OtherEffect": "none",
}
"""Words for the reasons of the condition `EvictionInProgress`; `-o json` shows the reason itself."""
ANY = "every device of the cluster"


def selector(item: taintrules.DeviceSelector | None) -> str:
    """Return the description of a selector's devices."""
    if item is None:
        return "no device"
    fields = {
        "driver": item.driver,
        "pool": item.pool,
        "device": item.device,
        "class": item.device_class_name,
    }
    parts = [f"{name} {value}" for name, value in fields.items() if value is not None]
    parts += ["expressions"] if item.selectors else []
    if item.driver is None and (item.pool or item.device):
        parts.append("of any driver" if item.pool else "of any driver and pool")
    return ", ".join(parts) or ANY


def taint(item: slices.Taint) -> str:
    """Return key and value as text."""
    return f"{item.key}={item.value}" if item.value else item.key


def rule(item: taintrules.DeviceTaintRule, batches: int) -> dict[str, Any]:
    """Return a rule, and the number of its evicting batches, as JSON values."""
    annotations = item.metadata.annotations
    progress = meta.find(item.status.conditions, taintrules.EVICTION_CONDITION)
    chosen = item.spec.device_selector
    return {
        "name": item.metadata.name,
        "effect": item.spec.taint.effect,
        "taint": taint(item.spec.taint),
        "selector": None if chosen is None else msgspec.to_builtins(chosen),
        "selects": selector(chosen),
        "evictionsPerSecond": item.spec.taint.evictions_per_second,
        "batches": batches,
        "batchOf": item.owner if item.is_batch else None,
        "eviction": {"reason": progress.reason, "message": progress.message}
        if progress is not None
        else None,
        "createdAt": item.metadata.creation_timestamp,
        "createdBy": annotations.get(taintrules.CREATED_BY_ANNOTATION),
        "reason": annotations.get(taintrules.REASON_ANNOTATION),
        "expiresAt": meta.timestamp(item.expires_at) if item.expires_at is not None else None,
    }


def rules(items: Sequence[taintrules.DeviceTaintRule]) -> list[dict[str, Any]]:
    """Return rules as JSON values; a batch is counted with its rule, or listed itself if the rule is gone."""
    names = {item.metadata.name for item in items}
    batches = Counter(item.owner for item in items if item.is_batch)
    shown = [item for item in items if not item.is_batch or item.owner not in names]
    return [
        rule(item, batches[item.metadata.name]) for item in sorted(shown, key=lambda item: item.metadata.name)
    ]


def show_rules(out: console.Console, items: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of rules."""
    head = ("RULE", "EFFECT", "TAINT", "SELECTS", "EVICTION", "BY", "UNTIL", "REASON")
    lines = [
        [
            item["name"] if item["batchOf"] is None else f"{item['name']} (batch of {item['batchOf']})",
            item["effect"]
            + (f", {rule_steps.count_noun(item['batches'], 'batch rule')}" if item["batches"] else ""),
            item["taint"],
            item["selects"],
            EVICTIONS.get(item["eviction"]["reason"], item["eviction"]["reason"])
            if item["eviction"] is not None
            else None,
            item["createdBy"],
            item["expiresAt"],
            item["reason"],
        ]
        for item in items
    ]
    tables.rows(out, head, lines, "There is no DeviceTaintRule.")


def device_taints(listed: Sequence[slices.ResourceSlice]) -> list[dict[str, Any]]:
    """Return the taints that drivers publish, as JSON values."""
    return [
        {
            "device": str(device),
            "taint": taint(item),
            "effect": item.effect,
            "since": item.time_added,
            "description": item.description or None,
        }
        for device, item in preview.taints(listed)
    ]


def show_device_taints(out: console.Console, items: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of the taints that drivers publish."""
    head = ("DEVICE", "TAINT", "EFFECT", "SINCE", "DESCRIPTION")
    keys = ("device", "taint", "effect", "since", "description")
    tables.rows(
        out,
        head,
        [[item[key] for key in keys] for item in items],
        "No driver publishes a taint; drawbar taint list shows the rules.",
    )


def effects(
    seen: preview.Preview,
    chosen: taintrules.DeviceSelector | None,
    snapshot: observed.Snapshot,
    effect: str,
) -> dict[str, Any]:
    """Return the consequences of a taint with this effect, as JSON values; `wouldEvict` is for the effect NoExecute."""
    claims = Counter(claim.namespace for claim in seen.claims)
    pods = Counter(pod.namespace for pod in seen.pods)
    evicts = effect == encoding.NO_EXECUTE
    evicted = Counter(pod.namespace for pod in seen.evicted)
    return {
        "selects": selector(chosen),
        "selectsAll": seen.selects_all,
        "effect": effect,
        "devices": [str(device) for device in seen.published],
        "allocated": [str(device) for device in seen.allocated],
        "namespaces": [
            {
                "namespace": namespace,
                "claims": claims[namespace],
                "pods": pods[namespace],
                "evicted": evicted[namespace] if evicts else 0,
                "wouldEvict": evicted[namespace],
            }
            for namespace in seen.namespaces
        ],
        "claims": [
            {
                "namespace": claim.namespace,
                "name": claim.name,
                "devices": [str(device) for device in claim.devices],
            }
            for claim in seen.claims
        ],
        "pods": [
            {
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
                "fate": pod.fate.value if evicts else "stays",
                "afterSeconds": pod.after_seconds,
                "claims": list(pod.claims),
                "devices": [str(device) for device in pod.devices],
            }
            for pod in seen.pods
        ],
        "unread": snapshot.unread,
    }


def names(document: Mapping[str, Any]) -> list[str]:
    """Return the selected devices and the evicted pods as KIND/NAME."""
    evicted = [item for item in document["pods"] if item["fate"] in ("evicted", "later")]
    return [
        *(f"device/{name}" for name in document["devices"]),
        *(f"pod/{item['namespace']}/{item['name']}" for item in evicted),
    ]


def summary(document: Mapping[str, Any]) -> str:
    """Return the consequences of the taint, as a sentence."""
    would = sum(item["wouldEvict"] for item in document["namespaces"])
    spaces = sum(bool(item["wouldEvict"]) for item in document["namespaces"])
    pods = rule_steps.count_noun(len(document["pods"]), "pod")
    selected = (
        f"{rule_steps.count_noun(len(document['devices']), 'published device')} and "
        f"{rule_steps.count_noun(len(document['allocated']), 'allocated device')} selected"
    )
    then = f"NoExecute would evict {would} of {pods}"
    match document["effect"]:
        case encoding.NO_EXECUTE:
            return f"{selected}; effect NoExecute evicts {would} of {pods}, in {rule_steps.count_noun(spaces, 'namespace')}"
        case encoding.NO_SCHEDULE:
            return f"{selected}; effect NoSchedule evicts no pod and keeps further claims away ({then})"
    return f"{selected}; effect None changes nothing ({then})"


def describe(document: Mapping[str, Any]) -> str:
    """Return taint, effect, end and reason of a rule as text."""
    parts = [f"taint {document['taint']}", f"effect {document['effect']}"]
    if document["expiresAt"]:
        parts.append(f"until {document['expiresAt']}")
    if document["reason"]:
        parts.append(f'reason "{document["reason"]}"')
    return ", ".join(parts)


def show_effects(out: console.Console, document: Mapping[str, Any]) -> None:
    """Print the consequences of the taint."""
    tables.sentence(out, f"Selects {document['selects']}: {summary(document)}.")
    if document["selectsAll"]:
        tables.sentence(out, "These are all devices of the cluster.")
    if document["unread"]:
        tables.sentence(out, f"Not counted: {document['unread']} slices and claims that cannot be read.")
    if document["namespaces"]:
        keys = ("namespace", "claims", "pods", "evicted")
        lines = [[str(item[key]) for key in keys] for item in document["namespaces"]]
        tables.rows(out, ("NAMESPACE", "CLAIMS", "PODS", "EVICTED"), lines, "")
    if document["pods"]:
        lines = [
            [
                f"{item['namespace']}/{item['name']}",
                ", ".join(item["claims"]),
                ", ".join(item["devices"]),
                FATES[item["fate"]].format(**item),
            ]
            for item in document["pods"][:EXAMPLES]
        ]
        tables.rows(out, ("POD", "CLAIMS", "DEVICES", "THEN"), lines, "")
        if len(document["pods"]) > EXAMPLES:
            tables.sentence(out, f"... and {len(document['pods']) - EXAMPLES} more; `-o json` lists all.")


def show_rule(out: console.Console, document: Mapping[str, Any]) -> None:
    """Print a rule and its consequences, present or possible."""
    item = document["rule"]
    show_rules(out, [item])
    if item["eviction"] is not None and item["eviction"]["message"]:
        tables.sentence(out, f"The cluster reports: {item['eviction']['message']}")
    if document["preview"] is None:
        tables.sentence(out, "It selects by class or expressions, which are not computed here.")
    else:
        show_effects(out, document["preview"])


def show_steps(out: console.Console, document: Mapping[str, Any]) -> None:
    """Print the rule, its consequences and the steps of a change."""
    if document.get("taint") is not None:
        tables.sentence(out, f"DeviceTaintRule {document['rule']}: {describe(document)}.")
    if document.get("preview") is not None:
        show_effects(out, document["preview"])
    for number, step in enumerate(document["steps"], start=1):
        tables.sentence(out, f"{number}. {step}")
    if not document["steps"]:
        tables.sentence(out, "Nothing to do: it is so already.")
