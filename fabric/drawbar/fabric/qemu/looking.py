"""Reads what a virtual machine has. `qom-list` says the truth; `query-pci` adds addresses, once the guest gave some.

`query-pci` alone would not do: it leaves out what is behind a port that the guest has not yet given a bus number.
"""

from collections.abc import Iterator, Mapping, Sequence

from drawbar.fabric.qemu import configuration, qmp, rejections, sights

PERIPHERAL = "/machine/peripheral"
NO_UUID = "00000000-0000-0000-0000-000000000000"
_CHILD = "child["


async def look(spec: configuration.HostSpec, client: qmp.Client) -> sights.Host:
    """Everything that there is to see of a running QEMU.

    Raises:
        qmp.Rejected, qmp.Lost: it cannot be seen.
    """
    objects = await _names(client, "/objects", sights.PREFIX)
    nodes = await client.execute("query-named-block-nodes", {"flat": True})
    uuid = str((await client.execute("query-uuid"))["UUID"])
    return sights.Host(
        id=spec.id,
        uuid=None if uuid == NO_UUID else uuid,
        ports=tuple([await _port(client, name, model) for name, model in await _ports(spec, client)]),
        addresses=dict(_addresses(await client.execute("query-pci"))),
        objects=objects,
        nodes=frozenset(
            node["node-name"] for node in nodes if node.get("node-name", "").startswith(sights.NODE_PREFIX)
        ),
    )


async def _ports(spec: configuration.HostSpec, client: qmp.Client) -> Sequence[tuple[str, str]]:
    """Ids and models of the hot-plug ports."""
    models = {
        entry["name"]: entry["type"].removeprefix("child<").removesuffix(">")
        for entry in await client.execute("qom-list", {"path": PERIPHERAL})
    }
    wanted = sorted(models, key=_in_order) if spec.ports is None else spec.ports
    return [(name, models[name]) for name in wanted if models.get(name) in sights.PORTS]


async def _port(client: qmp.Client, name: str, model: str) -> sights.Port:
    slot = await _get(client, f"{PERIPHERAL}/{name}", "slot")
    bus = f"{PERIPHERAL}/{name}/{name}"
    occupants = []
    for entry in await client.execute("qom-list", {"path": bus}):
        if entry["name"].startswith(_CHILD):
            path = await _get(client, bus, entry["name"])
            if path is not None:
                occupants.append(await _occupant(client, str(path)))
    return sights.Port(
        id=name,
        cxl=model in sights.CXL_PORTS,
        slot=slot if isinstance(slot, int) else None,
        occupants=tuple(occupants),
    )


async def _occupant(client: qmp.Client, path: str) -> sights.Occupant:
    device_id = sights.device_id(path)
    if device_id is None:
        return sights.Occupant(path=path)
    note = await _get(client, f"/objects/{sights.note_id(device_id)}", "identity")
    return sights.Occupant(path=path, device_id=device_id, note=sights.Note.parse(note))


async def _get(client: qmp.Client, path: str, name: str) -> qmp.Answer:
    """A property; None when the object or the property has gone meanwhile."""
    try:
        return await client.execute("qom-get", {"path": path, "property": name})
    except qmp.Rejected as error:
        # A property that is missing is told in the same words as one that a model does not have.
        if rejections.meaning(error) in {rejections.Meaning.GONE, rejections.Meaning.UNSUPPORTED}:
            return None
        raise


async def _names(client: qmp.Client, path: str, prefix: str) -> frozenset[str]:
    entries = await client.execute("qom-list", {"path": path})
    return frozenset(entry["name"] for entry in entries if entry["name"].startswith(prefix))


def _addresses(buses: Sequence[Mapping[str, qmp.Answer]]) -> Iterator[tuple[str, str]]:
    """QEMU's ids and PCI addresses of all devices that have both."""
    for bus in buses:
        yield from _below(bus.get("devices", ()))


def _below(devices: Sequence[Mapping[str, qmp.Answer]]) -> Iterator[tuple[str, str]]:
    for device in devices:
        if device.get("qdev_id"):
            place = f"0000:{device['bus']:02x}:{device['slot']:02x}.{device['function']:x}"
            yield device["qdev_id"], place
        yield from _below(device.get("pci_bridge", {}).get("devices", ()))


def _in_order(name: str) -> tuple[str, int, str]:
    """So that port-2 comes before port-10."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0), name
