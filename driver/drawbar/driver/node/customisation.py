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
    given: spec.ContainerEdits, said: parameters.DeviceParameters, *, first_interface: int
) -> spec.ContainerEdits:
    """Return the container edits with the parameters applied.

    Args:
        given: the edits of the device's class.
        said: the device's parameters.
        first_interface: the number of the device's first network interface, if the parameters number them.
    """
    if said == parameters.NOTHING:
        return given
    return msgspec.structs.replace(
        given,
        env=(*given.env, *(f"{name}={value}" for name, value in sorted(said.environment.items()))),
        device_nodes=tuple(
            _file(node, said.device_files)
            for node in given.device_nodes
            if not (_is_loaded_here(said) and node.path.startswith(_LOADERS))
        ),
        net_devices=_interfaces(given.net_devices, said.network.interface_prefix, first_interface),
    )


def _is_loaded_here(said: parameters.DeviceParameters) -> bool:
    """Return whether the daemon itself loads a bitstream, in place of a hook."""
    return said.fpga.bitstream is not None and said.initialise.hook is None


def _file(node: spec.DeviceNode, said: parameters.DeviceFiles) -> spec.DeviceNode:
    return msgspec.structs.replace(
        node,
        permissions=READ_ONLY if said.read_only else node.permissions,
        uid=node.uid if said.user is None else said.user,
        gid=node.gid if said.group is None else said.group,
        file_mode=node.file_mode if said.mode is None else int(said.mode, 8),
    )


def _interfaces(
    given: tuple[spec.NetDevice, ...], prefix: str | None, first: int
) -> tuple[spec.NetDevice, ...]:
    if prefix is None:
        return given
    return tuple(
        msgspec.structs.replace(interface, name=f"{prefix}{number}")
        for number, interface in enumerate(given, start=first)
    )
