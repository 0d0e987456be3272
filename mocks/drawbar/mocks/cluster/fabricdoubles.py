"""The doubles of a fabric for a cluster: their start, and the controller's access to them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import msgspec

from drawbar.fabric import contract
from drawbar.mocks.cluster import children
from drawbar.mocks.cluster.paths import ClusterPaths
from drawbar.mocks.cluster.settings import Settings
from drawbar.mocks.fabric import configuration as simulated
from drawbar.mocks.redfish import configuration as redfish

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricDouble:
    """One kind of double.

    Attributes:
        adapter: the Fabric's adapter.
        configuration: a function that returns the content of its configuration file; every node is a host.
        command: a function that returns its module and command line. Its ready line has its `endpoint`.
        parameters: a function that returns the Fabric's parameters.
    """

    adapter: str
    configuration: Callable[[Settings, ClusterPaths], msgspec.Struct]
    command: Callable[[ClusterPaths], tuple[str, ...]]
    parameters: Callable[[Settings], dict[str, str]] = lambda _: {}


def _make_simulated_configuration(settings: Settings, paths: ClusterPaths) -> simulated.Configuration:
    hosts = tuple(
        simulated.HostSpec(
            id=f"host-{number}", name=name, ports=settings.slots, sysfs=str(paths.node(name).sysfs)
        )
        for number, name in enumerate(settings.nodes, 1)
    )
    return msgspec.structs.replace(
        settings.fabric,
        hosts=hosts,
        enclosures=settings.enclosures,
        attach_seconds=settings.attach_seconds,
        detach_seconds=settings.detach_seconds,
    )


def _simulated_command(paths: ClusterPaths) -> tuple[str, ...]:
    return (
        *(
            children.DOUBLES,
            "fabric",
            "--config",
            str(paths.fabric_configuration),
            "--listen",
            paths.endpoint,
        ),
        *("--journal", str(paths.journal), "--state", str(paths.fabric_state)),
        *("--control", f"unix:{paths.fabric_control}"),
    )


def _redfish(
    method: Literal["zones", "composition", "connections"],
) -> Callable[[Settings, ClusterPaths], redfish.Configuration]:
    def describe(settings: Settings, paths: ClusterPaths) -> redfish.Configuration:
        return redfish.Configuration(
            hosts=tuple(redfish.Host(id=name, sysfs=str(paths.node(name).sysfs)) for name in settings.nodes),
            enclosures=tuple(
                redfish.Enclosure(
                    id=enclosure.id,
                    devices=tuple(
                        _redfish_device(simulated.device(enclosure, spec)) for spec in enclosure.devices
                    ),
                )
                for enclosure in settings.enclosures
            ),
            method=method,
            task_seconds=settings.attach_seconds,
        )

    return describe


def _redfish_device(device: contract.Device) -> redfish.Device:
    described = {
        "id": device.id,
        "kind": device.device_class.value,
        "model": device.model,
        "vendor": device.vendor,
        "serial": device.serial or "",
        "memoryMib": device.memory_bytes // MIB
        if device.device_class is not contract.DeviceClass.NVME
        else 0,
        "vendorId": f"0x{device.pci_vendor_id or 0:04x}",
        "deviceId": f"0x{device.pci_device_id or 0:04x}",
    }
    return msgspec.convert(described, redfish.Device)


def _redfish_command(paths: ClusterPaths) -> tuple[str, ...]:
    return (
        *(children.DOUBLES, "redfish", "--config", str(paths.fabric_configuration)),
        *("--journal", str(paths.journal)),
    )


def _redfish_parameters(settings: Settings) -> dict[str, str]:
    return {"ports": str(settings.slots), "pollSeconds": "5"}


SIMULATED = FabricDouble(
    adapter="grpc", configuration=_make_simulated_configuration, command=_simulated_command
)
METHODS: tuple[tuple[str, Literal["zones", "composition", "connections"]], ...] = (
    ("redfish", "zones"),
    ("redfish-composition", "composition"),
    ("redfish-connections", "connections"),
)
DOUBLES: Mapping[str, FabricDouble] = MappingProxyType(
    {
        "simulated": SIMULATED,
        **{
            name: FabricDouble(
                adapter="redfish",
                configuration=_redfish(method),
                command=_redfish_command,
                parameters=_redfish_parameters,
            )
            for name, method in METHODS
        },
    }
)
"""The doubles by their names in options."""
