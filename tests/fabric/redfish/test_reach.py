"""Devices that a host cannot have, as zones and fabrics of real services tell it."""

import pytest
from tests.scenes import redfish_servers
from tests.scenes.redfish_servers import ROOT, adapting, link, put_gpu, put_host

from drawbar.fabric import contract, errors

ZONES = f"{ROOT}/CompositionService/ResourceZones"


def zone(*names):
    return {"Links": {"Zones": [link(f"{ZONES}/{name}") for name in names]}}


async def test_a_block_in_no_zone_of_a_host_is_named_and_refused():
    """Only the blocks link to the zones, as in the DMTF's mockup of composability."""
    made = redfish_servers.Service()
    compute = {"ResourceBlockType": ["Compute"]}
    made.put_blocks(
        {
            "C1": compute | zone("1"),
            "C2": compute | zone("2"),
            "OffloadBlock9": {"ResourceBlockType": ["Processor"]} | zone("2"),
        },
        {"host1": ["C1"], "host2": ["C2"]},
    )
    async with adapting(made) as adapter:
        assert (await adapter.devices()).oddities == ("OffloadBlock9 is in no resource zone of host1",)
        with pytest.raises(errors.FailedPrecondition) as caught:
            await adapter.attach(
                contract.AttachRequest(request_id="r", device_id="OffloadBlock9", host_id="host1")
            )
    assert caught.value.reason == errors.Reason.INCOMPATIBLE
    assert made.changes == []


async def test_a_device_in_another_fabric_than_a_host_is_named():
    made = redfish_servers.Service()
    made.put_fabric("A", {"h1": put_host(made, "host1"), "g1": put_gpu(made, "g1", "S1")})
    made.put_fabric("B", {"h2": put_host(made, "host2"), "g2": put_gpu(made, "g2", "S2")})
    async with adapting(made) as adapter:
        assert (await adapter.devices()).oddities == (
            "A.g1 is in no fabric of host2",
            "B.g2 is in no fabric of host1",
        )
