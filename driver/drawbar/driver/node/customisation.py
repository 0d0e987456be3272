"""The effect of the parameters of class and claim on the edits of a container; pure.

Parameters restrict or rename the edits of the device's class. They never add a device file, an interface or a mount.

If the daemon has loaded a bitstream into the device, the container does not get the file for it, so it cannot load another
bitstream.
"""

import msgspec

from drawbar.cdi import spec
from drawbar.driver.api import parameters

READ_ONLY = "r"
_LOADERS = "/dev/dfl-fme."
"""The prefix of the management engines' device files of DFL cards."""


def customise(
    edits: spec.ContainerEdits, device_parameters: parameters.DeviceParameters, *, first_interface: int
) -> spec.ContainerEdits:
    """Return the container edits with the parameters applied.

    Args:
        edits: the edits of the device's class.
        device_parameters: the device's parameters.
        first_interface: the number of the device's first network interface, if the parameters number them.
    """
    if device_parameters == parameters.NOTHING:
        return edits
    return msgspec.structs.replace(
        edits,
        env=(
            *edits.env,
            *(f"{name}={value}" for name, value in sorted(device_parameters.environment.items())),
        ),
        device_nodes=tuple(
            _file(node, device_parameters.device_files)
            for node in edits.device_nodes
            if not (_is_loaded_here(device_parameters) and node.path.startswith(_LOADERS))
        ),
        net_devices=_interfaces(
            edits.net_devices, device_parameters.network.interface_prefix, first_interface
        ),
    )


def _is_loaded_here(device_parameters: parameters.DeviceParameters) -> bool:
    """Return whether the daemon itself loads a bitstream, in place of a hook."""
    return device_parameters.fpga.bitstream is not None and device_parameters.initialise.hook is None


def _file(node: spec.DeviceNode, file_parameters: parameters.DeviceFiles) -> spec.DeviceNode:
    return msgspec.structs.replace(
        node,
        permissions=READ_ONLY if file_parameters.read_only else node.permissions,
        uid=node.uid if file_parameters.user is None else file_parameters.user,
        gid=node.gid if file_parameters.group is None else file_parameters.group,
        file_mode=node.file_mode if file_parameters.mode is None else int(file_parameters.mode, 8),
    )


def _interfaces(
    net_devices: tuple[spec.NetDevice, ...], prefix: str | None, first: int
) -> tuple[spec.NetDevice, ...]:
    if prefix is None:
        return net_devices
    return tuple(
        msgspec.structs.replace(interface, name=f"{prefix}{number}")
        for number, interface in enumerate(net_devices, start=first)
    )
