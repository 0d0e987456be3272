"""What a device changes in the container that gets it.

The CDI device is named by claim and device, so that a runtime never serves a stale entry for a later claim.
"""

import re

import msgspec

from drawbar.cdi import spec
from drawbar.driver.api import parameters
from drawbar.driver.node import classes, customisation
from drawbar.driver.node.inventory import model

ENVIRONMENT_SAFE = re.compile(r"[^A-Z0-9]")


def kind(driver: str) -> str:
    """The CDI kind of all devices of this driver."""
    return f"{driver}/device"


def device(
    *,
    name: str,
    serial: str,
    device_class: str,
    card: model.Card,
    claim_uid: str,
    host: classes.Host,
    said: parameters.DeviceParameters,
    first_interface: int,
    mounts: tuple[spec.Mount, ...] = (),
    companions: tuple[model.Card, ...] = (),
) -> spec.Device:
    """The CDI device for one device of one claim.

    It has the variables that name the device, and what the class of device gives (`classes`), as its parameters want
    it (`customisation`).

    Reads single files of the host: call it in a thread.

    Args:
        name: the device's DRA name.
        serial: as the fabric or the kernel reports it; may be empty.
        device_class: one of `drawbar.fabric.classes.DeviceClass`.
        card: all functions, as the kernel shows them now.
        claim_uid: of the claim.
        host: where device files that a class shares are looked for.
        said: the parameters that hold for it.
        first_interface: the number of its first network interface, where they are numbered.
        mounts: what its containers get beside it.
        companions: the other members of its composite, which the same containers get.
    """
    given = classes.by_name(device_class).for_composite(companions).edits(card, host)
    given = customisation.customised(given, said, first_interface=first_interface)
    variables = environment(name, serial, card)
    return spec.Device(
        name=f"{claim_uid}-{name}",
        edits=msgspec.structs.replace(given, env=(*variables, *given.env), mounts=(*given.mounts, *mounts)),
    )


def environment(name: str, serial: str, card: model.Card) -> tuple[str, ...]:
    """`DRAWBAR_<DEVICE>_PCI_ADDRESS` and, where there is one, `DRAWBAR_<DEVICE>_SERIAL`.

    What no variable's name may have becomes `_`.
    """
    prefix = "DRAWBAR_" + ENVIRONMENT_SAFE.sub("_", name.upper())
    address = f"{prefix}_PCI_ADDRESS={card.address}"
    return (address, f"{prefix}_SERIAL={serial}") if serial else (address,)
