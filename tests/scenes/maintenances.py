"""Devices and nodes that are put into maintenance, as a technician does with kubectl."""

from drawbar.driver.kube import kinds


async def begin(api, *, devices=(), nodes=(), fabric="fab", name="work", **spec):
    """Put devices and nodes of a Fabric into maintenance; return the object."""
    listed = {"devices": list(devices)} if devices else {}
    listed |= {"nodes": list(nodes)} if nodes else {}
    body = {
        "apiVersion": kinds.MAINTENANCE.api_version,
        "kind": kinds.MAINTENANCE.kind,
        "metadata": {"name": name},
        "spec": {"fabric": fabric, **listed, **spec},
    }
    return await api.create(kinds.MAINTENANCE, body, into=dict)


async def end(api, name="work"):
    """End a piece of maintenance."""
    await api.delete(kinds.MAINTENANCE, name)


async def read_applied_condition(api, name="work"):
    """Return the condition Applied; empty while there is none."""
    item = await api.read(kinds.MAINTENANCE, name, into=dict)
    conditions = item.get("status", {}).get("conditions", ())
    return next((condition for condition in conditions if condition["type"] == "Applied"), {})
