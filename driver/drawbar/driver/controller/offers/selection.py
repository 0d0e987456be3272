"""The selection of a manager's devices that a Fabric offers; pure.

Invariants:

- a device that does not meet the filters of `spec.offer` is never offered;
- of one model no more devices are offered than `maxPerModel`, and the selection depends on the devices, not on their
  order;
- a device that this cluster holds goes before a published one, and that before any other; so a device that comes or
  goes never displaces an offered one;
- a device that is connected without this cluster is not counted and not offered by number: it serves another cluster.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping

from drawbar.driver.api import fabrics
from drawbar.driver.controller import names
from drawbar.fabric import contract


def not_offered(
    offer: fabrics.Offer,
    devices: Iterable[contract.Device],
    *,
    held: Collection[str] = (),
    published: Mapping[str, str] | None = None,
    missing: Collection[str] = (),
) -> frozenset[str]:
    """Return the names of the listed devices that the Fabric does not offer.

    Args:
        offer: the Fabric's offer.
        devices: the manager's listed devices.
        held: the names of devices that this cluster has attached or given to a claim.
        published: by name, the model of each device in a slice of the Fabric.
        missing: the names of unlisted devices that keep their earlier state.
    """
    if offer.is_everything:
        return frozenset()
    listed = {device.id: device for device in devices}
    whole = [device for device in listed.values() if _origin(device, listed) == device.id]
    inside = {
        device.id: device
        for device in whole
        if offer.has_device(device.id, device.device_class.value, device.model, device.enclosure)
    }
    if offer.max_per_model is not None:
        models, present = published or {}, set(map(names.label, listed))
        counted = Counter(models[name] for name in missing if name in models and name not in present)
        over = _find_surplus(offer.max_per_model, inside.values(), held, models.keys(), counted)
        inside = {device_id: device for device_id, device in inside.items() if device_id not in over}
    return frozenset(
        names.label(device.id) for device in listed.values() if _origin(device, listed) not in inside
    )


def _origin(device: contract.Device, listed: Collection[str]) -> str:
    """Return the id of a memory chunk's source, which is offered with it; for any other device its own id."""
    if device.slice_of is not None and device.slice_of.origin_id in listed:
        return device.slice_of.origin_id
    return device.id


def _find_surplus(
    most: int,
    devices: Iterable[contract.Device],
    held: Collection[str],
    published: Collection[str],
    counted: Mapping[str, int],
) -> set[str]:
    """Return the ids of the devices beyond their model's number."""
    by_model: dict[str, list[contract.Device]] = defaultdict(list)
    over: set[str] = set()
    for device in devices:
        if device.connection is not None and names.label(device.id) not in held:
            over.add(device.id)
        else:
            by_model[device.model or device.device_class.value].append(device)
    for model, alike in by_model.items():
        alike.sort(key=lambda device: _rank(names.label(device.id), held, published))
        over |= {device.id for device in alike[max(most - counted.get(model, 0), 0) :]}
    return over


def _rank(name: str, held: Collection[str], published: Collection[str]) -> tuple[bool, bool, str]:
    return name not in held, name not in published, name
