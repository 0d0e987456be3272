"""The description of a device for the node that has to recognise it; pure.

A number of two devices of the fabric identifies neither of them, so it is marked as shared. Some devices show no number
to the node, and the fabric does not name their slot. Such a device is recognised by its arrival: no two such devices of
one model are attached to one node at the same time, and the node lists its cards first.
"""

from collections.abc import Collection

from drawbar.driver.api import attachments, meta
from drawbar.driver.controller.fabrics import numbers
from drawbar.fabric import contract, recognition, witnesses
from drawbar.fabric.classes import DeviceClass
from drawbar.fabric.witnesses import Kind


def identify(
    device: contract.Device,
    *,
    shared: Collection[tuple[Kind, str]] = (),
    host: contract.Host | None = None,
) -> attachments.Identity:
    """Return the identity by which the node recognises the device.

    Args:
        device: a device of the fabric.
        shared: its identifiers that other devices of the fabric also have.
        host: the device's future host; None if not known.
    """
    described = numbers.remove_identifiers(device, shared)
    listed, serial = device.identifiers, described.serial
    if device.serial and serial is None:
        undeclared = witnesses.identifier(Kind.SERIAL, device.serial)
        listed = (*listed, undeclared) if undeclared is not None else listed
    forecast = recognition.forecast(described, has_slot=_names_slots(host))
    return attachments.Identity(
        device_class=device.device_class.value,
        serial=serial or "",
        identifiers=tuple(
            attachments.DeviceIdentifier(
                kind=each.kind.value,
                value=each.value,
                source=each.source,
                shared=each not in described.identifiers,
            )
            for each in listed
        ),
        pci_id=pci_id(device),
        sole_arrival=forecast.means is recognition.Means.SOLE_ARRIVAL,
    )


def pci_id(device: contract.Device) -> str:
    """Return vendor and device as `vvvv:dddd`; empty if the fabric does not know them."""
    if device.pci_vendor_id is None or device.pci_device_id is None:
        return ""
    return f"{device.pci_vendor_id:04x}:{device.pci_device_id:04x}"


def is_awaiting_arrival(attachment: attachments.DeviceAttachment) -> bool:
    """Return whether the device still has to be recognised by its arrival on its node."""
    node = attachment.status.node
    is_recognised = node is not None and node.recognised_by is not None
    return attachment.identity.sole_arrival and not is_recognised


def could_be_mistaken(attachment: attachments.DeviceAttachment, other: attachments.DeviceAttachment) -> bool:
    """Return whether a card of one device could be taken for the other; two known models only if they are the same."""
    first, second = attachment.spec.identity, other.spec.identity
    has_models = all(recognition.parse_pci_id(each.pci_id) for each in (first, second))
    if has_models and DeviceClass.FPGA not in _classes(first, second):
        return first.pci_id == second.pci_id
    classes = _classes(first, second)
    return len(classes) == 1 or classes <= recognition.VAGUE_CLASSES


def is_acknowledged(attachment: attachments.DeviceAttachment) -> bool:
    """Return whether the node has listed its cards, or need not."""
    return not is_awaiting_arrival(attachment) or attachment.status.baseline is not None


def awaits_recognition(attachment: attachments.DeviceAttachment, *, begun: bool | None) -> bool:
    """Return whether a card of the device may arrive, or has arrived, and is not recognised yet.

    Args:
        attachment: the device's attachment.
        begun: whether the fabric was asked to attach the device; None if not known.
    """
    if not is_awaiting_arrival(attachment):
        return False
    return begun is not False or meta.is_true(attachment.status.conditions, attachments.ATTACHED)


def _classes(*identities: attachments.Identity) -> frozenset[str]:
    return frozenset(each.device_class for each in identities)


def _names_slots(host: contract.Host | None) -> bool:
    return host is not None and bool(host.ports) and all(port.slot_hint for port in host.ports)
