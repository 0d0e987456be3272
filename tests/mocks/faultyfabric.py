"""A simulated fabric with configured faults, and what the tests of these ask of it."""

import json
from contextlib import asynccontextmanager

from drawbar.fabric import contract
from drawbar.mocks.fabric import SimulatedFabric, configuration


def describe(**changes):
    described = {
        "hosts": [{"id": "h1", "ports": 2}, {"id": "h2", "ports": 1}],
        "enclosures": [
            {
                "id": "e1",
                "devices": [
                    {
                        "id": f"d{number}",
                        "class": "nvme",
                        "model": "m",
                        "serial": f"SN{number}",
                        "pciVendor": 0x144D,
                        "pciDevice": 0xA824,
                    }
                    for number in range(1, 4)
                ],
            }
        ],
        **changes,
    }
    return configuration.parse(json.dumps(described).encode())


def attach(device_id="d1", host_id="h1", request_id=None, **more):
    return contract.AttachRequest(
        request_id=request_id or f"a-{device_id}-{host_id}", device_id=device_id, host_id=host_id, **more
    )


def detach(device_id="d1", host_id="h1", request_id=None):
    return contract.DetachRequest(
        request_id=request_id or f"x-{device_id}-{host_id}",
        device_id=device_id,
        host_id=host_id,
        host_prepared=True,
    )


@asynccontextmanager
async def fabric_with(*faults, **changes):
    files = {name: changes.pop(name) for name in ("journal", "state") if name in changes}
    async with SimulatedFabric.running(describe(faults=list(faults), **changes), **files) as fabric:
        yield fabric
