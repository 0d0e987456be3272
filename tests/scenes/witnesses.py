"""How a mocked card is recognised in an inventory: by an identifier that a kernel shows of its class."""

from drawbar.fabric.classes import DeviceClass
from drawbar.fabric.witnesses import Kind, normal

AMD = 0x1002
_KINDS = {DeviceClass.NVME: Kind.NVME_SERIAL, DeviceClass.NIC: Kind.MAC, DeviceClass.GPU: Kind.GPU_UUID}


def kind(card):
    """Return the kind of identifier by which a kernel shows the card."""
    if card.device_class is DeviceClass.GPU and card.vendor == AMD:
        return Kind.BOARD_SERIAL
    return _KINDS.get(card.device_class, Kind.PCIE_DSN)


def addresses(inventory, card):
    """Return the addresses of the functions that show this card's identifier."""
    wanted = kind(card), normal(kind(card), card.text(kind(card)))
    return [
        function.address
        for function in inventory.functions
        if wanted in {(each.kind, each.value) for each in function.identifiers}
    ]
