"""A mixed set of devices in two enclosures, as in a rack of composable hardware.

The vendors, models and PCI ids are those of real cards (pci.ids). The serial numbers are invented in each class's
format.
"""

import itertools
from dataclasses import dataclass

from drawbar.fabric import contract
from drawbar.mocks.fabric import configuration

GIB = 1 << 30
MOST_OF_A_CLASS = 64
"""The limit per class, so that two hexadecimal digits suffice for the serial numbers."""
ENCLOSURES = ("chassis-1", "chassis-2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model of card.

    Attributes:
        serial: the format of the serial number.
        link_mts: the maximum speed of its link, in MT/s per lane.
        lanes: the maximum width of its link, in lanes.
    """

    device_class: contract.DeviceClass
    vendor: str
    model: str
    pci_vendor: int
    pci_device: int
    serial: str
    link_mts: int
    lanes: int
    memory_bytes: int = 0
    compute_capability: str = ""


MODELS = (
    Model(
        device_class=contract.DeviceClass.GPU,
        vendor="NVIDIA",
        model="H100 PCIe 80GB",
        pci_vendor=0x10DE,
        pci_device=0x2331,
        serial="48-b0-2d-00-00-00-00-{:02x}",
        link_mts=32_000,
        lanes=16,
        memory_bytes=80 * GIB,
        compute_capability="9.0",
    ),
    Model(
        device_class=contract.DeviceClass.FPGA,
        vendor="AMD",
        model="Alveo U250",
        pci_vendor=0x10EE,
        pci_device=0x5004,
        serial="00-0a-35-00-00-00-00-{:02x}",
        link_mts=8_000,
        lanes=16,
        memory_bytes=64 * GIB,
    ),
    Model(
        device_class=contract.DeviceClass.NVME,
        vendor="Samsung",
        model="PM1733 3.84TB",
        pci_vendor=0x144D,
        pci_device=0xA824,
        serial="S4YNNE0N80{:04d}",
        link_mts=16_000,
        lanes=4,
        memory_bytes=3_840_755_982_336,
    ),
    Model(
        device_class=contract.DeviceClass.CXL_MEMORY,
        vendor="Montage",
        model="CXL Memory Expander M88MX5891",
        pci_vendor=0x1B00,
        pci_device=0xC001,
        serial="35200{:04d}",
        link_mts=32_000,
        lanes=8,
        # Small, because a mocked kernel takes milliseconds for each block of 256 MiB.
        memory_bytes=8 * GIB,
    ),
    Model(
        device_class=contract.DeviceClass.NIC,
        vendor="NVIDIA",
        model="ConnectX-7",
        pci_vendor=0x15B3,
        pci_device=0x1021,
        serial="94-6d-ae-00-00-00-00-{:02x}",
        link_mts=32_000,
        lanes=16,
    ),
    Model(
        device_class=contract.DeviceClass.ACCELERATOR,
        vendor="Intel",
        model="Gaudi2",
        pci_vendor=0x1DA3,
        pci_device=0x1020,
        serial="b0-fd-0b-00-00-00-00-{:02x}",
        link_mts=16_000,
        lanes=16,
        memory_bytes=96 * GIB,
    ),
)


def make_enclosures(amounts: dict[contract.DeviceClass, int]) -> tuple[configuration.EnclosureSpec, ...]:
    """Return enclosures with the given number of devices of each class; the enclosures take turns."""
    models = {model.device_class: model for model in MODELS}
    devices = [
        _device(models[device_class], number)
        for device_class, amount in amounts.items()
        for number in range(1, amount + 1)
    ]
    dealt: dict[str, list[configuration.DeviceSpec]] = {enclosure: [] for enclosure in ENCLOSURES}
    for enclosure, device in zip(itertools.cycle(ENCLOSURES), devices, strict=False):
        dealt[enclosure].append(device)
    return tuple(
        configuration.EnclosureSpec(id=enclosure, devices=tuple(held)) for enclosure, held in dealt.items()
    )


def parse_amounts(text: str) -> dict[contract.DeviceClass, int]:
    """Return the amounts in a text like `gpu=4,nvme=2`.

    Raises:
        ValueError: the text is invalid; the message has the remedy.
    """
    classes = {model.device_class.value: model.device_class for model in MODELS}
    amounts: dict[contract.DeviceClass, int] = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        if name not in classes or not (
            number.isascii() and number.isdecimal() and int(number) <= MOST_OF_A_CLASS
        ):
            raise ValueError(
                f"{part!r} is no amount of devices: write CLASS=N, with a class of {', '.join(classes)} and N of at most "
                f"{MOST_OF_A_CLASS}"
            )
        amounts[classes[name]] = int(number)
    return amounts


def _device(model: Model, number: int) -> configuration.DeviceSpec:
    return configuration.DeviceSpec(
        id=f"{model.device_class.value}-{number}",
        device_class=model.device_class,
        model=model.model,
        vendor=model.vendor,
        serial=model.serial.format(number),
        memory_bytes=model.memory_bytes,
        compute_capability=model.compute_capability,
        max_link_speed_mts=model.link_mts,
        max_link_width=model.lanes,
        pci_vendor=model.pci_vendor,
        pci_device=model.pci_device,
    )
