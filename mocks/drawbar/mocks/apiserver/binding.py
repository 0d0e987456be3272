"""Binding a pod to a node, as the scheduler does at the end of its work."""

from __future__ import annotations

from typing import Any

from drawbar.mocks.apiserver import errors, visits
from drawbar.mocks.apiserver.registry import Registry
from drawbar.mocks.apiserver.visits import Visit

Json = dict[str, Any]


def bind(registry: Registry, visit: Visit, binding: Json) -> Json:
    """Assign a pod to the node that the binding targets; answers with a Status.

    Raises:
        ApiError: 404, 409 (another uid, being deleted, or assigned already) or 422 (no target).
    """
    node = (binding.get("target") or {}).get("name") if isinstance(binding.get("target"), dict) else None
    if not node:
        cause = errors.required("target.name")
        raise errors.invalid("Binding", "", visit.target.name, [cause])
    pod = registry.find(visit.resource, visit.target.namespace, visit.target.name)
    held = pod["spec"].get("nodeName")
    uid = (binding.get("metadata") or {}).get("uid")
    problem = ""
    if uid and uid != pod["metadata"]["uid"]:
        problem = (
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {pod['metadata']['uid']}"
        )
    elif pod["metadata"].get("deletionTimestamp"):
        problem = f"pod {visit.target.name} is being deleted, cannot be assigned to a host"
    elif held:
        problem = f'pod {visit.target.name} is already assigned to node "{held}"'
    if problem:
        raise errors.conflict("pods/binding", "", visit.target.name, problem)
    status = pod.get("status") or {}
    conditions = [c for c in status.get("conditions") or () if c.get("type") != "PodScheduled"]
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastTransitionTime": visit.now,
        "lastProbeTime": None,
    }
    if not visits.is_dry_run(visit):
        bound = {
            **pod,
            "spec": {**pod["spec"], "nodeName": node},
            "status": {**status, "conditions": [*conditions, scheduled]},
        }
        registry.write(visit.resource, bound)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
