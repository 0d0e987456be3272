"""The CDI device of a claim's device: its changes to a container.

The CDI device is named by claim and device, so that a runtime never serves a stale entry to a later claim.
"""

import re

import msgspec

from drawbar.cdi import spec
from drawbar.driver.api import parameters
from drawbar.driver.node import classes, customisation
from drawbar.driver.node.inventory import model

ENVIRONMENT_SAFE = re.compile(r"[^A-Z0-9]")


def kind(driver: str) -> str:
    """Return the CDI kind of all devices of this driver."""
    return f"{driver}/device"


def device(
    *,
    name: str,
    serial: str,
    device_class: str,
    card: model.Card,
    claim_uid: str,
    host: classes.Host,
    device_parameters: parameters.DeviceParameters,
    first_interface: int,
    mounts: tuple[spec.Mount, ...] = (),
    companions: tuple[model.Card, ...] = (),
) -> spec.Device:
    """Return the CDI device for one device of one claim.

    It contains the environment variables of the device, and the edits of the device's class (`classes`) with its parameters
    applied (`customisation`). The function reads files of the host: call it in a thread.

    Args:
        name: the device's DRA name.
        serial: the serial number from the fabric or the kernel; may be empty.
        device_class: one of `drawbar.fabric.classes.DeviceClass`.
        card: all functions of the device, as the kernel shows them now.
        claim_uid: the claim's UID.
        host: the host of the device files that a class shares.
        device_parameters: the device's parameters.
        first_interface: the number of the device's first network interface, if the parameters number them.
        mounts: further mounts of the containers.
        companions: the other members of the device's composite, which the same containers get.
    """
    container_edits = classes.by_name(device_class).for_composite(companions).edits(card, host)
    container_edits = customisation.customise(
        container_edits, device_parameters, first_interface=first_interface
    )
    variables = environment(name, serial, card)
    return spec.Device(
        name=f"{claim_uid}-{name}",
        edits=msgspec.structs.replace(
            container_edits, env=(*variables, *container_edits.env), mounts=(*container_edits.mounts, *mounts)
        ),
    )


def environment(name: str, serial: str, card: model.Card) -> tuple[str, ...]:
    """Return the variables `DRAWBAR_<DEVICE>_PCI_ADDRESS` and, if there is a serial number, `DRAWBAR_<DEVICE>_SERIAL`.

    In the device's name, each character that is invalid in a variable's name becomes `_`.
    """
    prefix = "DRAWBAR_" + ENVIRONMENT_SAFE.sub("_", name.upper())
    address = f"{prefix}_PCI_ADDRESS={card.address}"
    return (address, f"{prefix}_SERIAL={serial}") if serial else (address,)
