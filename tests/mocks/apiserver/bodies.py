"""Objects of resource.k8s.io as a client writes them, and the fields that the server complains of."""

from typing import Any

TAINT = {"key": "a.dev/b", "effect": "NoSchedule"}
POLICY = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "40Gi", "step": "1Gi"}}


def fields(reply: Any) -> list[str]:
    assert reply.code == 422, reply.body
    return [cause["field"] for cause in reply.body["details"]["causes"]]


def device(**more: Any) -> dict[str, Any]:
    return {"name": "a", **more}


def make_shared_device(**policy: Any) -> dict[str, Any]:
    capacity = {"memory": {"value": "80Gi", "requestPolicy": POLICY | policy}}
    return device(allowMultipleAllocations=True, capacity=capacity)


def claim(spec: Any = None, **request: Any) -> dict[str, Any]:
    exactly = {"deviceClassName": "gpu", **request}
    default = {"devices": {"requests": [{"name": "dev", "exactly": exactly}]}}
    return {"metadata": {"name": "c1"}, "spec": spec if spec is not None else default}
