"""The part of the tree that belongs to one object; pure."""

from collections.abc import Set

import msgspec

from drawbar.driver.cli import objects
from drawbar.driver.cli.status import tree


def narrow(
    whole: tree.Tree, target: objects.Target, chosen_claims: Set[tuple[str, str]] | None = None
) -> tree.Tree:
    """Return the target's part of the tree.

    Args:
        whole: the tree of the cluster, or of a node, claim or pod.
        target: an object; a fabric, enclosure, device or attachment is selected here.
        chosen_claims: the namespaces and names of the claims without a device to keep; None for all.

    Raises:
        objects.Missing: there is no object of that name.
    """
    if chosen_claims is not None:
        listed = tuple(claim for claim in whole.claims if (claim.namespace, claim.name) in chosen_claims)
        whole = msgspec.structs.replace(whole, claims=listed)
    if target.kind not in ("fabric", "enclosure", "device", "attachment"):
        return whole

    def is_meant(device: tree.Device, fabric: str, enclosure: str) -> bool:
        match target.kind:
            case "fabric":
                return fabric == target.name
            case "enclosure":
                return f"{fabric}/{enclosure}".rstrip("/") == target.name
            case "device":
                return target.name in (device.name, f"{device.pool}/{device.name}", device.id)
        return bool(device.attachment) and device.attachment == target.name

    chosen: list[tree.Fabric] = []
    for fabric in whole.fabrics:
        enclosures = []
        for enclosure in fabric.enclosures:
            devices = tuple(
                device for device in enclosure.devices if is_meant(device, fabric.name, enclosure.name)
            )
            if devices:
                enclosures.append(tree.Enclosure(name=enclosure.name, devices=devices))
        if enclosures or (target.kind == "fabric" and fabric.name == target.name):
            chosen.append(msgspec.structs.replace(fabric, enclosures=tuple(enclosures)))
    local = tuple(
        tree.Local(node=entry.node, devices=devices)
        for entry in whole.local
        if (devices := tuple(device for device in entry.devices if is_meant(device, "", "")))
    )
    if not chosen and not local:
        raise objects.Missing(f"there is no {target.kind} {target.name}{_others(whole, target.kind)}")
    return msgspec.structs.replace(whole, fabrics=tuple(chosen), local=local, claims=())


def _others(whole: tree.Tree, kind: str) -> str:
    """Return the first names of a kind, as the end of a sentence."""
    match kind:
        case "fabric":
            known = [fabric.name for fabric in whole.fabrics]
        case "enclosure":
            known = [f"{fabric.name}/{part.name}" for fabric in whole.fabrics for part in fabric.enclosures]
        case "device":
            known = [device.name for device in whole.devices]
        case _:
            known = [device.attachment for device in whole.devices if device.attachment]
    return f"; there is {', '.join(known[:5])}" if known else ""
