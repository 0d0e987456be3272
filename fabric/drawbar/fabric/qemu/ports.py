"""The choice of a virtual machine's port for a device, from QEMU's state; pure.

The invariant: the chosen port is not in use, not reserved by another operation, and of the right kind.
"""

from collections.abc import Set

from drawbar.fabric import errors
from drawbar.fabric.qemu import sights


def choose(host: sights.Host, reserved: Set[tuple[str, str]], *, cxl: bool) -> str:
    """Return the id of the first free port that suits a device.

    Args:
        host: in its current state.
        reserved: host and port of the attaches in flight.
        cxl: whether the device needs a CXL port instead of a PCIe one.

    Raises:
        Unavailable: the machine does not run.
        ResourceExhausted: NO_FREE_PORT.
    """
    if not host.running:
        raise errors.Unavailable(f"the virtual machine of host {host.id} does not run; start it")
    for port in host.ports:
        if not port.port_devices and (host.id, port.id) not in reserved and port.cxl == cxl:
            return port.id
    raise errors.ResourceExhausted(
        f"host {host.id} has no free {'CXL' if cxl else 'PCIe'} root port; start its QEMU with more of them",
        reason=errors.Reason.NO_FREE_PORT,
        host_id=host.id,
    )
