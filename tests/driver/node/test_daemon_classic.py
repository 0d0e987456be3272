"""The node daemon on clusters without `resource.k8s.io/v1`: it serves, reports what it leaves out, and writes no claim."""

import logging

import grpc.aio
import pytest
from tests.scenes import nodes

from drawbar.driver.api import handles
from drawbar.driver.kube import kinds
from drawbar.driver.node import claim_versions
from drawbar.mocks.kubelet import protocols, versions

NODE, DRIVER = nodes.NODE, nodes.DRIVER
SPECS = {
    "v1alpha2": {"resourceClassName": "disks"},
    "v1alpha3": {
        "controller": DRIVER,
        "devices": {"requests": [{"name": "disk", "deviceClassName": "disks"}]},
    },
}


def allocation(version):
    if version == "v1alpha3":
        result = {"request": "disk", "driver": DRIVER, "pool": "fab/enc", "device": "nvme-0"}
        return {"allocation": {"controller": DRIVER, "devices": {"results": [result]}}}
    return {
        "driverName": DRIVER,
        "allocation": {"resourceHandles": [{"driverName": DRIVER, "data": handle()}]},
    }


def handle():
    device = handles.HandleDevice(
        request="claim", fabric="fab", pool="fab/enc", device="nvme-0", attachment="fab.nvme-0"
    )
    return handles.encode(handles.Handle(node=NODE, devices=(device,)))


@pytest.mark.parametrize(
    ("profile", "version", "service"),
    [("1.30-classic", "v1alpha2", versions.V1ALPHA3), ("1.31-classic", "v1alpha3", versions.V1ALPHA4)],
)
async def test_a_device_is_visible_prepared_and_released_without_a_word_on_the_claim(
    tmp_path, until, caplog, profile, version, service
):
    caplog.set_level(logging.WARNING)
    kind = kinds.CLASSIC_CLAIMS[version]
    async with nodes.serving(tmp_path, profile=profile, version=version) as node:
        claim = await node.create(kind, "c1", spec=SPECS[version])
        await node.attach(claim)
        await node.controller_says()
        await node.plug()
        await until(node.conditions, lambda seen: seen.get("Visible", {}).get("status") == "True")
        await until(node.is_listening, bool)
        consumer = {"resource": "pods", "name": "p1", "uid": "p1"}
        await node.set_status(kind, "c1", allocation(version) | {"reservedFor": [consumer]})
        uid = claim["metadata"]["uid"]
        named = protocols.Claim(namespace="default", name="c1", uid=uid, handle=handle())
        async with grpc.aio.insecure_channel(f"unix:{node.socket}") as channel:
            answers = await protocols.prepare(channel, service, [named], 30)
            assert answers[uid].error == ""
            assert [device.cdi for device in answers[uid].devices] == [(f"{DRIVER}/device={uid}-nvme-0",)]
            await node.detach()
            assert (await protocols.unprepare(channel, service, [named], 30))[uid].error == ""
        await until(node.conditions, lambda seen: seen.get("Released", {}).get("status") == "True")

        written = {write.resource for write in node.server.writes if write.user.endswith(nodes.ACCOUNT)}
        assert "deviceattachments" in written
        assert written <= {"deviceattachments", "events"}
    (reported,) = [record for record in caplog.records if record.name == claim_versions.__name__]
    assert reported.served == version
    assert not [record for record in caplog.records if "resourceslices" in record.getMessage()]
