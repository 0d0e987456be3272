"""A Fabric with the adapter redfish, through the whole controller, beside another Fabric that nothing happens to."""

import asyncio
import base64
import json
import traceback

import pytest
from tests.scenes import waiting

from drawbar.driver.controller import names, settings
from drawbar.driver.kube import kinds
from drawbar.driver.operation import address
from drawbar.mocks import redfish
from drawbar.mocks.redfish import paths
from drawbar.mocks.redfish.configuration import Configuration, Device, Enclosure, Host

USER, PASSWORD = "drawbar", "correct horse"
SECRET = {"credentialsSecretRef": {"name": "fabric-credentials"}}


def configuration(**changes):
    device = Device(id="gpu-1", kind="gpu", model="A100", vendor="N", serial="S1")
    settings = {
        "hosts": (Host(id="node-1"), Host(id="node-2")),
        "enclosures": (Enclosure(id="e1", devices=(device,)),),
        "username": USER,
        "password": PASSWORD,
    }
    return Configuration(**(settings | changes))


async def make_secret(cluster, service, **values):
    values = {"origins": service.url} | values
    data = {name: base64.b64encode(value.encode()).decode() for name, value in values.items()}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fabric-credentials"}, "data": data}
    await cluster.api.create(kinds.SECRET, body, namespace="drawbar", into=dict)


@pytest.mark.parametrize(
    ("form", "device_id"),
    [
        ({}, "PCIe.gpu-1"),
        ({"zones": "port", "product": "H3 Falcon"}, "PCIe.gpu-1"),
        ({"method": "composition", "actions": True, "task_seconds": 0.1}, "gpu-1"),
    ],
    ids=["zones of pairs", "zones of ports", "composition by tasks"],
)
async def test_a_claim_gets_a_device_and_gives_it_back(controller_world, until, form, device_id):
    device = names.label(device_id)
    async with (
        controller_world() as cluster,
        cluster.listing_nodes(),
        redfish.serving(configuration(**form)) as service,
    ):
        await make_secret(cluster, service, username=USER, password=PASSWORD)
        cluster.start(leader_election=False)
        await cluster.make_fabric("rack", adapter="redfish", endpoint=service.url, **SECRET)
        await cluster.condition("Connected", "rack", status="True")
        await until(lambda: cluster.taints(device), lambda taints: taints == [])
        await cluster.allocate(device, pool="rack/e1")
        await cluster.wait_until_attached(device)
        assert service.connections() == {"gpu-1": ["node-1"]}
        await cluster.deallocate()
        (name,) = await cluster.attachments()
        await cluster.wait_until_deleting(name)
        await cluster.release_attachments(name)
        assert not any(service.connections().values())


GPUS = tuple(Device(id=f"gpu-{n}", kind="gpu", model="A100", vendor="N", serial=f"S{n}") for n in (1, 2, 3))


@pytest.mark.parametrize("accident", ["none", "the reply is lost", "the controller ends"])
async def test_a_service_that_chooses_gives_a_claim_one_device_and_takes_that_one_back(
    controller_world, until, accident
):
    form = {"method": "composition", "constrained": True, "username": "", "password": ""}
    form |= {"enclosures": (Enclosure(id="e1", devices=GPUS),)}
    seconds = 0.5 if accident == "the controller ends" else 0.0
    async with (
        controller_world() as cluster,
        cluster.listing_nodes(),
        redfish.serving(configuration(**form, task_seconds=seconds)) as service,
    ):
        cluster.start(leader_election=False)
        await cluster.make_fabric(
            "rack", adapter="redfish", endpoint=service.url, parameters={"profile": "constrained"}
        )
        place = f"{names.label('A100')}-1"
        await until(lambda: cluster.taints(place), lambda taints: taints == [])
        if accident == "the reply is lost":
            fault = redfish.Fault(kind=redfish.FaultKind.LOST_REPLY, methods=("PATCH",), path="/Systems")
            service.faults.add(fault)
        await cluster.allocate(place, pool="rack/e1")
        if accident == "the controller ends":
            await until(cluster.attachments, bool)
            await waiting.eventually(lambda: service.tree.list_members(paths.TASKS))
            await cluster.stop()
            cluster.start(leader_election=False)
        await cluster.wait_until_attached(place)
        # The service gives the last free block of the model.
        assert service.connections() == {"gpu-3": ["node-1"]}
        claim = await cluster.api.read(kinds.CLAIM, "c1", namespace="default", into=dict)
        assert claim["status"]["devices"][0]["data"] == {"deviceID": "gpu-3", "serialNumber": "S3"}
        await cluster.deallocate()
        await cluster.wait_until_deleting(f"rack.{place}")
        await cluster.release_attachments(f"rack.{place}")
        assert not any(service.connections().values())


@pytest.mark.parametrize(
    ("login", "fault", "reason", "words"),
    [
        ({"password": "wrong"}, None, "Unauthenticated", "user name and password in the Fabric's Secret"),
        ({}, redfish.FaultKind.HTML, "Unavailable", "look at the endpoint"),
        ({}, redfish.FaultKind.HUGE, "LimitExceeded", "raise spec.policy.limits.listingMebibytes"),
        ({}, redfish.FaultKind.REDIRECT, "Unavailable", "another host"),
        ({}, redfish.FaultKind.FORBIDDEN, "PermissionDenied", "ConfigureComponents"),
        ({}, redfish.FaultKind.STALL, "DeadlineExceeded", "raise spec.timeoutSeconds"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else None,
)
async def test_a_failure_is_a_condition_of_its_fabric_with_the_remedy(
    controller_world, caplog, login, fault, reason, words
):
    caplog.set_level("DEBUG")
    async with controller_world() as cluster, redfish.serving(configuration()) as service:
        if fault is not None:
            service.faults.add(redfish.Fault(kind=fault, methods=("GET",), path="/Fabrics", times=None))
        await make_secret(cluster, service, **({"username": USER, "password": PASSWORD} | login))
        cluster.start(leader_election=False)
        await cluster.make_fabric()
        await cluster.make_fabric("rack", adapter="redfish", endpoint=service.url, timeoutSeconds=2, **SECRET)
        condition = await cluster.condition("Connected", "rack", status="False", reason=reason)
        assert words in condition["message"]
        await cluster.condition("Connected", status="True")
    assert PASSWORD not in caplog.text
    assert PASSWORD not in condition["message"]


# They happen to a change; all others happen to a reading.
OF_CHANGES = {
    redfish.FaultKind.STALE_ETAG,
    redfish.FaultKind.SLOW_TASK,
    redfish.FaultKind.LOST_TASK,
    redfish.FaultKind.FAILED_TASK,
}
WRITTEN = (kinds.FABRIC, kinds.ATTACHMENT, kinds.EVENT, kinds.CLAIM, kinds.SLICE)


@pytest.mark.parametrize("kind", list(redfish.FaultKind))
async def test_no_password_or_token_is_in_anything_that_the_controller_writes(
    controller_world, caplog, tmp_path, kind
):
    caplog.set_level("DEBUG")
    page = f"unix:{tmp_path / 'h.sock'}"
    async with (
        controller_world() as cluster,
        cluster.listing_nodes(),
        redfish.serving(configuration()) as service,
    ):
        methods = ("POST", "PATCH", "DELETE") if kind in OF_CHANGES else ("GET", "POST")
        service.faults.add(redfish.Fault(kind=kind, methods=methods, path="/Fabrics", times=None))
        await make_secret(cluster, service, username=USER, password=PASSWORD)
        cluster.start(leader_election=False, http=settings.Http(address=page))
        await cluster.make_fabric("rack", adapter="redfish", endpoint=service.url, timeoutSeconds=2, **SECRET)
        if kind in OF_CHANGES:
            await waiting.until(cluster.slices, bool)
            await cluster.allocate(names.label("PCIe.gpu-1"), pool="rack/e1")
        await waiting.eventually(lambda: service.faults.met[kind])
        await waiting.until(lambda: cluster.fabric_condition("Connected", "rack"), bool)
        metrics = await asyncio.to_thread(address.ask, address.parse(page), "/metrics")
        await cluster.stop()
        texts = [metrics.text]
        for written in WRITTEN:
            texts += [json.dumps(stored) for stored in (await cluster.api.list_all(written, into=dict)).items]
    for record in caplog.records:
        texts += [record.getMessage(), repr(vars(record))]
        if record.exc_info:
            texts += traceback.format_exception(*record.exc_info)
    assert "drawbar_controller" in metrics.text
    assert service.issued
    basic = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    secrets = (PASSWORD, basic, *service.issued)
    assert [text for text in texts if any(secret in text for secret in secrets)] == []
