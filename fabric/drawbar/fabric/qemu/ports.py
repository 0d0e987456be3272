"""Chooses the port of a virtual machine that a device goes to, from what QEMU shows; pure.

The invariant: no port is chosen that is seen in use or is another operation's, nor one of the wrong kind.
"""

from collections.abc import Set

from drawbar.fabric import contract, errors, judgement
from drawbar.fabric.qemu import sights


def choose(
    request: contract.AttachRequest,
    device_id: str,
    host: sights.Host,
    reserved: Set[tuple[str, str]],
    *,
    cxl: bool,
) -> str:
    """Return the id of the port that the request names, or of the first free one that suits the device.

    Args:
        request: the attach.
        device_id: the device that it is for.
        host: as seen now.
        reserved: host and port of the attaches in flight.
        cxl: whether the device needs a CXL port, and not a PCIe one.

    Raises:
        Unavailable: the machine does not run.
        NotFound: the host has no such port.
        FailedPrecondition: INCOMPATIBLE, PORT_IN_USE.
        ResourceExhausted: NO_FREE_PORT.
    """
    if not host.running:
        raise errors.Unavailable(f"the virtual machine of host {host.id} does not run; start it")
    kind = "CXL" if cxl else "PCIe"
    free = [port for port in host.ports if not port.occupants and (host.id, port.id) not in reserved]
    if request.port_id is None:
        port = next((port for port in free if port.cxl == cxl), None)
        if port is None:
            raise errors.ResourceExhausted(
                f"host {host.id} has no free {kind} root port; start its QEMU with more of them",
                reason=errors.Reason.NO_FREE_PORT,
                host_id=host.id,
            )
        return port.id
    port = host.port(request.port_id)
    if port is None:
        raise judgement.no_such_port(request.port_id, host.id)
    if port.cxl != cxl:
        raise errors.FailedPrecondition(
            f"device {device_id} needs a {kind} port, and port {port.id} of host {host.id} is none",
            reason=errors.Reason.INCOMPATIBLE,
        )
    if port not in free:
        raise judgement.port_in_use(port.id, host.id)
    return port.id
