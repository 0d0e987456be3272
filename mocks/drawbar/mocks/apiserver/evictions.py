"""The eviction of a pod on request: a deletion, if the pod's PodDisruptionBudget allows it.

A budget allows `status.disruptionsAllowed` evictions; nothing here computes that number. For pods that are not ready
only the default policy, `IfHealthyBudget`, is supported.

Source: k8s.io/kubernetes/pkg/registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

from typing import Any

from drawbar.mocks.apiserver import admissionrules, errors
from drawbar.mocks.apiserver.builtin import BUDGETS
from drawbar.mocks.apiserver.registry import Registry
from drawbar.mocks.apiserver.strategies import Call

Json = dict[str, Any]

_OVER = ("Succeeded", "Failed", "Pending")
_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_DISRUPTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


def evict(registry: Registry, call: Call, eviction: Json) -> Json:
    """Delete the request's pod, and return a Status.

    Raises:
        ApiError: 400, 404, 409 (another uid or version), 429 (its budget does not allow it) or 500 (it has two budgets).
    """
    if (eviction.get("metadata") or {}).get("name") != call.name:
        raise errors.bad_request("name in URL does not match name in Eviction object")
    options = eviction.get("deleteOptions") or {}
    pod = registry.find(call.resource, call.namespace, call.name)
    registry.check_preconditions(call, pod, options.get("preconditions") or {})
    is_over = (pod.get("status") or {}).get("phase") in _OVER or "deletionTimestamp" in pod["metadata"]
    if not is_over:
        _take(registry, call, pod)
    if not call.dry_run:
        status = pod.get("status") or {}
        rest = [held for held in status.get("conditions") or () if held["type"] != _DISRUPTED["type"]]
        changed = {**_DISRUPTED, "lastTransitionTime": call.now, "lastProbeTime": None}
        pod = registry.write(call.resource, {**pod, "status": {**status, "conditions": [*rest, changed]}})
    registry.remove_or_mark(call, pod, grace=options.get("gracePeriodSeconds"))
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _take(registry: Registry, call: Call, pod: Json) -> None:
    """Count the eviction of a running pod against its budget, if it has one."""
    labels = pod["metadata"].get("labels") or {}
    budgets = [
        budget
        for (namespace, _), budget in registry.store.collection(BUDGETS.where).items.items()
        if namespace == call.namespace
        and budget["spec"].get("selector") is not None
        and admissionrules.selects(budget["spec"]["selector"], labels)
    ]
    if not budgets:
        return
    if len(budgets) > 1:
        raise errors.ApiError(code=500, reason="", message=_SEVERAL)
    (budget,) = budgets
    name, status = budget["metadata"]["name"], budget.get("status") or {}
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if not _is_ready(pod) and healthy >= desired > 0:
        return
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _refusal(
            f"The disruption budget {name} is still being processed by the server.", retry_seconds=10
        )
    allowed = status.get("disruptionsAllowed", 0)
    if not allowed:
        text = f"The disruption budget {name} does not allow evicting pods currently"
        if healthy <= desired:
            text = f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        raise _refusal(text, retry_seconds=0)
    if not call.dry_run:
        disrupted = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: call.now}
        left = {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}
        registry.write(BUDGETS, {**budget, "status": left})


def _is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(held["type"] == "Ready" and held["status"] == "True" for held in conditions)


def _refusal(text: str, *, retry_seconds: int) -> errors.ApiError:
    details: Json = {"causes": [{"reason": "DisruptionBudget", "message": text}]}
    if retry_seconds:
        details["retryAfterSeconds"] = retry_seconds
    return errors.ApiError(code=429, reason="TooManyRequests", message=_REFUSED, details=details)
