"""Objects in their smallest valid form, for tests to change one thing."""

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]
ATTACHED = "contract.drawbar.dev/attached"
VISIBLE = "contract.drawbar.dev/visible"
FAILED = "contract.drawbar.dev/attach-failed"
NODE_LABEL = "contract.drawbar.dev/node"
EPOCH = "2026-01-01T00:00:00Z"

BINDING: Json = {"bindsToNode": True, "bindingConditions": [ATTACHED], "bindingFailureConditions": [FAILED]}
PROBE: Json = {"key": "contract.drawbar.dev/probe", "effect": "NoSchedule"}
GATED_SLICE_FIELDS: dict[str, Json] = {
    "bindingConditions": BINDING,
    "taints": {"taints": [PROBE]},
    "allowMultipleAllocations": {"allowMultipleAllocations": True},
    "listAttributes": {"attributes": {"probe": {"strings": ["a"]}}},
}
"""A device's fields that show whether the gate is on."""


def device(name: str, **fields: Any) -> Json:
    """Return a device with one attribute."""
    return {"name": name, "attributes": {"model": {"string": "H100"}}, **fields}


def slice_of(name: str, *, driver: str, devices: Sequence[Json] | None = None, **spec: Any) -> Json:
    """Return a ResourceSlice that is its whole pool, for no node that there is; a None in `spec` leaves the field out."""
    whole = {
        "driver": driver,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        "nodeSelector": for_nodes("nowhere"),
        "devices": [device("d1")] if devices is None else list(devices),
        **spec,
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {key: value for key, value in whole.items() if value is not None},
    }


def request(name: str, device_class: str, **exactly: Any) -> Json:
    """Return a request for one device of a class."""
    return {"name": name, "exactly": {"deviceClassName": device_class, **exactly}}


def result(driver: str, pool: str, name: str, **fields: Any) -> Json:
    """Return one allocated device."""
    return {"request": "one", "driver": driver, "pool": pool, "device": name, **fields}


def for_nodes(label: str) -> Json:
    """Return a selector of fake nodes of ours."""
    return {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": NODE_LABEL, "operator": "In", "values": [label]}]}
        ]
    }


def node_selector(node: str) -> Json:
    """Return the scheduler's node selector for a device that binds to its node."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {"nodeSelectorTerms": [term]}


def condition(kind: str, status: str = "True", **fields: Any) -> Json:
    """Return a condition of a device."""
    return {
        "type": kind,
        "status": status,
        "reason": "Done",
        "message": "",
        "lastTransitionTime": EPOCH,
        **fields,
    }


def device_status(driver: str, pool: str, name: str, *conditions: Json, **fields: Any) -> Json:
    """Return an entry of status.devices."""
    return {"driver": driver, "pool": pool, "device": name, "conditions": list(conditions), **fields}


def pod_spec(*claims: str, node: str | None = None, **fields: Any) -> Json:
    """Return a pod for a fake node only, with claims by name; a delete removes it at once."""
    return {
        "containers": [{"name": "main", "image": "registry.invalid/contract:none"}],
        "serviceAccountName": "pods",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {NODE_LABEL: node or "nowhere"},
        "resourceClaims": [
            {"name": f"c{number}", "resourceClaimName": claim} for number, claim in enumerate(claims)
        ],
        **fields,
    }
