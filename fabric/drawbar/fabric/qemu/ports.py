"""Chooses the port of a virtual machine that a device goes to, from what QEMU shows; pure.

The invariant: no port is chosen that is seen in use or is another operation's, nor one of the wrong kind.
"""

from collections.abc import Set

from drawbar.fabric import errors
from drawbar.fabric.qemu import sights


def choose(host: sights.Host, reserved: Set[tuple[str, str]], *, cxl: bool) -> str:
    """Return the id of the first free port that suits a device.

    Args:
        host: as seen now.
        reserved: host and port of the attaches in flight.
        cxl: whether the device needs a CXL port, and not a PCIe one.

    Raises:
        Unavailable: the machine does not run.
        ResourceExhausted: NO_FREE_PORT.
    """
    if not host.running:
        raise errors.Unavailable(f"the virtual machine of host {host.id} does not run; start it")
    for port in host.ports:
        if not port.occupants and (host.id, port.id) not in reserved and port.cxl == cxl:
            return port.id
    raise errors.ResourceExhausted(
        f"host {host.id} has no free {'CXL' if cxl else 'PCIe'} root port; start its QEMU with more of them",
        reason=errors.Reason.NO_FREE_PORT,
        host_id=host.id,
    )
