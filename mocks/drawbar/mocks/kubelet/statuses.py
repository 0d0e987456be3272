"""The kubelet double's writes about a pod: its status, and the annotation that lists prepared devices.

Source: Kubernetes API reference, `core/v1` PodStatus and ResourceStatus.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from drawbar.mocks.claims import documents
from drawbar.mocks.kubelet import claiminfo, health

PREPARED_ANNOTATION = "mocks.drawbar.dev/prepared"

EXTENDED = "<extended-resources>"
"""The placeholder for the pod's name of the claim for extended resources, which has none."""

Json = dict[str, Any]
Claims = Mapping[str, claiminfo.ClaimInfo]
"""The claims of a pod, by the pod's names for them."""
Look = Callable[[str, str, str], tuple[health.Status, str]]
"""Health and message of a device, by driver, pool and name."""


def containers(pod: documents.Document) -> list[Json]:
    """Return the entries of the pod's containers, without the init containers."""
    return list(pod.spec.get("containers") or ())


def uses(container: Json) -> list[Json]:
    """Return the claims, or requests of claims, named by a container."""
    return list((container.get("resources") or {}).get("claims") or ())


def is_used(pod: documents.Document, claim: str) -> bool:
    """Return true if a container or init container of the pod names the claim."""
    every = [*(pod.spec.get("initContainers") or ()), *containers(pod)]
    return any(use["name"] == claim for container in every for use in uses(container))


def cdi_ids(pod: documents.Document, container: Json, claims: Claims) -> list[str]:
    """Return the CDI ids of one container: of its claims or single requests, and of extended resources."""
    _, mappings = documents.extended_claim(pod)
    extended = [
        {"name": EXTENDED, "request": mapping["requestName"]}
        for mapping in mappings
        if mapping["containerName"] == container["name"]
    ]
    return [
        name
        for use in uses(container) + extended
        for device in _devices(use, claims)
        if device.serves(use.get("request") or "")
        for name in device.cdi
    ]


def make_prepared_annotation(claims: Claims) -> str | None:
    """Return the annotation, a JSON list of claim, device and CDI ids; None for a pod without devices."""
    content = [
        {
            "claim": info.name,
            # Before 1.31 a kubelet receives only CDI ids.
            "device": "/".join(part for part in (device.driver, device.pool, device.device) if part),
            "cdi": list(device.cdi),
        }
        for info in claims.values()
        for device in info.devices
    ]
    # After a second Prepare each device occurs twice.
    unique = [entry for number, entry in enumerate(content) if entry not in content[:number]]
    return json.dumps(unique) if unique else None


def make_running_status(pod: documents.Document, claims: Claims, look: Look | None, now: str) -> Json:
    """Return the status of a pod whose containers all run. Without `look` no health is shown."""
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": now}
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    started = [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": "",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
        for container in containers(pod)
    ]
    status = {"phase": "Running", "startTime": now, "conditions": conditions, "containerStatuses": started}
    if look is not None:
        status["containerStatuses"] = with_health(pod, started, claims, look)
    return status


def with_health(pod: documents.Document, reported: list[Json], claims: Claims, look: Look) -> list[Json]:
    """Return the container statuses with the present `allocatedResourcesStatus`."""
    by_name = {container["name"]: container for container in containers(pod)}
    fresh = []
    for status in reported:
        container = by_name.get(status["name"])
        if container is None or not uses(container):
            fresh.append(status)
            continue
        kept = {key: value for key, value in status.items() if key != "allocatedResourcesStatus"}
        allocated = list(_list_allocated_resources(container, claims, look))
        fresh.append(kept | ({"allocatedResourcesStatus": allocated} if allocated else {}))
    return fresh


def make_ended_status(pod: documents.Document, now: str) -> Json:
    """Return the status of a pod whose containers were stopped and have ended."""
    terminated = [
        {
            **{key: value for key, value in status.items() if key != "started"},
            "ready": False,
            "started": False,
            "state": {
                "terminated": {
                    "exitCode": 0,
                    "reason": "Completed",
                    "startedAt": ((status.get("state") or {}).get("running") or {}).get("startedAt", now),
                    "finishedAt": now,
                }
            },
        }
        for status in pod.status.get("containerStatuses") or ()
    ]
    return {"phase": "Succeeded", "containerStatuses": terminated}


def _list_allocated_resources(container: Json, claims: Claims, look: Look) -> Iterator[Json]:
    for use in uses(container):
        request = use.get("request") or ""
        resources: dict[str, Json] = {}
        for device in _devices(use, claims):
            if not device.serves(request.partition("/")[0]):
                continue
            name = device.cdi[0] if device.cdi else f"{device.driver}/{device.pool}/{device.device}"
            status, message = look(device.driver, device.pool, device.device)
            entry = {"resourceID": name, "health": status} | ({"message": message} if message else {})
            resources.setdefault(name, entry)
        if resources:
            name = f"claim:{use['name']}" + (f"/{request}" if request else "")
            yield {"name": name, "resources": list(resources.values())}


def _devices(use: Json, claims: Claims) -> list[claiminfo.Device]:
    info = claims.get(use["name"])
    return info.devices if info is not None else []
