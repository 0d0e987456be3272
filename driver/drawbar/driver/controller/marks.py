"""The owner of a connection, by the mark that the fabric keeps with it; pure.

A mark names the cluster and the Fabric. If two Fabrics reach one manager, neither must take the other's devices for
lost ones. The mark also names the driver: a device of another driver may still be in use after the Fabric came to this
one.
"""

import enum
import hashlib
from collections.abc import Callable, Collection, Iterable

from drawbar.driver.api import drivers
from drawbar.fabric import contract

HASH_CHARS = 8


class Owner(enum.Enum):
    """The owner of a device's connection."""

    NONE = "none"
    """The device is free."""
    OURS = "ours"
    """This driver made the connection, in this cluster, through this Fabric."""
    OTHERS = "others"
    UNTOLD = "untold"
    """The connection has no mark: it was made before marks were kept, or the fabric keeps none."""


def mark(cluster: str, fabric: str, driver: str = drivers.DEFAULT) -> str | None:
    """Return the mark of this driver's connections, at most 117 bytes with a UUID as the cluster, or None without a cluster."""
    if not cluster:
        return None
    plain = f"drawbar/{cluster}/{fabric}"
    if driver == drivers.DEFAULT:
        return plain
    return f"{plain}/{hashlib.sha256(driver.encode()).hexdigest()[:HASH_CHARS]}"


def owner(connection: contract.Connection | None, own: str | None, *, recorded: bool) -> Owner:
    """Return the owner of a connection.

    Args:
        connection: the connection in the fabric's report.
        own: our mark; None if the fabric keeps no marks, or ours is not known.
        recorded: whether the device has a DeviceAttachment.
    """
    if connection is None:
        return Owner.NONE
    if connection.mark is not None:
        return Owner.OURS if connection.mark == own else Owner.OTHERS
    # Our connections are recorded first, and marked if the fabric keeps marks.
    return Owner.UNTOLD if recorded or own is None else Owner.OTHERS


def began(operation: contract.Operation, own: str | None) -> bool:
    """Return whether an operation makes or ends a connection, or makes a memory chunk, with our mark."""
    if own is None:
        return False
    if operation.kind in (contract.OperationKind.ATTACH, contract.OperationKind.CREATE_SLICE):
        return operation.mark == own
    connection = operation.device.connection if operation.device is not None else None
    return connection is not None and connection.mark == own


def describe_stranded(
    devices: Iterable[contract.Device],
    own: str | None,
    *,
    recorded: Callable[[contract.Device], bool],
    mapped: Collection[str],
) -> tuple[str, ...]:
    """Return a sentence for each device of ours without a record that is connected to a host that is no node.

    Args:
        devices: the devices of one fabric.
        own: our mark; None if there is none.
        recorded: returns whether the device has a DeviceAttachment.
        mapped: the hosts that are nodes.
    """
    return tuple(
        f"device {device.id} was attached by this cluster to host {device.connection.host_id}, which is no node, and "
        "has no DeviceAttachment; map the host, or detach the device there"
        for device in devices
        if device.connection is not None
        and device.connection.mark is not None
        and device.connection.mark == own
        and device.connection.host_id not in mapped
        and not recorded(device)
    )
