"""What a service that chooses the device is asked for, by the mockup public-constrained-composition and odd ones."""

import asyncio

import pytest
from tests.scenes import waiting
from tests.scenes.redfish_trees import ROOT, block, composition, link, links, system

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish import constrained, profiles
from drawbar.fabric.redfish.documents import Document
from drawbar.mocks.redfish import Fault, FaultKind, paths

# As in the mockup, shortened.
PROCESSOR = {
    "@odata.type": "#Processor.v1_22_0.Processor",
    "@Redfish.RequestedCountRequired": True,
    "ProcessorType@Redfish.RequiredOnCreate": True,
    "Model@Redfish.OptionalOnCreate": True,
    "InstructionSet@Redfish.OptionalOnCreate": True,
}
GPU_URI = f"{ROOT}/CompositionService/ResourceBlocks/b1/Processors/GPU"
GPU = {
    "@odata.id": GPU_URI,
    "@odata.type": "#Processor.v1_22_0.Processor",
    "ProcessorType": "GPU",
    "Model": "VID2000",
}


def part(**properties):
    return Document(uri="/p", body={"Model": "M", "ProcessorType": "GPU", **properties})


TABLE = {
    "as the mockup": (PROCESSOR, part(), {"ProcessorType": "GPU", "Model": "M"}),
    "what is required is taken from the part": (
        PROCESSOR | {"TotalCores@Redfish.RequiredOnCreate": True},
        part(TotalCores=8),
        {"ProcessorType": "GPU", "TotalCores": 8, "Model": "M"},
    ),
    "what is required, and the part does not show": (
        PROCESSOR | {"TotalCores@Redfish.RequiredOnCreate": True},
        part(),
        None,
    ),
    "no model": ({"CapacityBytes@Redfish.RequiredOnCreate": True}, part(CapacityBytes=1), None),
}


@pytest.mark.parametrize(("template", "shown", "expected"), TABLE.values(), ids=TABLE)
def test_how_a_part_is_asked_for(template, shown, expected):
    described = constrained.member(template, shown, "M")
    assert described == (expected and {"@Redfish.RequestedCount": 1, **expected})


def tree(**capabilities):
    made = composition(
        block("b1", "Processor", Processors=links(GPU_URI)), GPU, block("b2", "Storage"), system("s1")
    )
    made.resources["/capabilities"] = {"@odata.id": "/capabilities", **capabilities}
    offered = {"UseCase": "ComputerSystemConstrainedComposition", "CapabilitiesObject": link("/capabilities")}
    made.resources[f"{ROOT}/Systems"]["@Redfish.CollectionCapabilities"] = {"Capabilities": [offered]}
    return made


async def test_a_device_is_asked_for_by_count_and_model_under_the_systems_etag():
    method = constrained.Constrained(profiles.PROFILES["constrained"])
    await method.read(tree(Processors={"Members": [PROCESSOR]}))
    view = method.view()
    assert list(view.devices) == ["b1"]
    assert any("b2 cannot be asked for" in oddity for oddity in view.oddities)
    request = contract.AttachRequest(request_id="r", model="VID2000", host_id="s1")
    call = method.attach(request, "b1", "")
    assert (call.method, call.uri) == ("PATCH", f"{ROOT}/Systems/s1")
    wanted = {"@Redfish.RequestedCount": 1, "ProcessorType": "GPU", "Model": "VID2000"}
    assert call.body == {"Processors": {"Members": [wanted]}}
    assert method.is_at({f"{ROOT}/Systems/s1"}, "s1")
    assert not method.is_at({f"{ROOT}/Systems/s1"}, "s2")


async def test_a_service_without_capabilities_is_refused():
    made = tree()
    del made.resources[f"{ROOT}/Systems"]["@Redfish.CollectionCapabilities"]
    with pytest.raises(errors.Unimplemented, match="constrained composition"):
        await constrained.Constrained(profiles.PROFILES["constrained"]).read(made)


async def serve(lab, **changes):
    service = await lab.serve(method="composition", constrained=True, **changes)
    return service, await lab.connect(service, parameters={"profile": "constrained"})


async def wait_until_done(adapter, operation):
    return await waiting.until(
        lambda: adapter.operation(operation_id=operation.id), lambda operation: operation.done
    )


@pytest.mark.parametrize("seconds", [0.0, 0.1], ids=["at once", "by a task"])
@pytest.mark.parametrize("kind", [None, FaultKind.LOST_REPLY, FaultKind.HALF_BODY, FaultKind.STALE_ETAG])
async def test_an_attach_by_model_gets_one_device_and_names_it(redfish_lab, kind, seconds):
    service, adapter = await serve(redfish_lab, task_seconds=seconds)
    if kind is not None:
        service.faults.add(Fault(kind=kind, methods=("PATCH",), path="/Systems"))
    request = redfish_lab.attach(None, model="A100")
    operation = await wait_until_done(adapter, await adapter.attach(request))
    assert operation.succeeded
    # The service gives its last free one.
    assert operation.device.id == "gpu-2"
    assert service.connections() == {"gpu-2": ["h1"]}
    assert (await adapter.attach(request)).device.id == "gpu-2"
    assert service.connections() == {"gpu-2": ["h1"]}
    await wait_until_done(adapter, await adapter.detach(redfish_lab.detach("gpu-2")))
    assert service.connections() == {}


async def test_two_attaches_at_once_get_two_devices_and_the_third_none(redfish_lab):
    service, adapter = await serve(redfish_lab, task_seconds=0.1)
    operations = [await adapter.attach(redfish_lab.attach(None, model="A100")) for _ in range(2)]
    with pytest.raises(errors.ResourceExhausted) as refused:
        await adapter.attach(redfish_lab.attach(None, model="A100"))
    assert refused.value.reason == errors.Reason.NO_DEVICE
    ended = [await wait_until_done(adapter, operation) for operation in operations]
    assert sorted(operation.device.id for operation in ended) == ["gpu-1", "gpu-2"]
    assert service.connections() == {"gpu-1": ["h1"], "gpu-2": ["h1"]}


async def test_a_new_adapter_asks_for_no_second_device_while_the_first_is_on_its_way(redfish_lab):
    service, adapter = await serve(redfish_lab)
    service.faults.add(Fault(kind=FaultKind.SLOW_TASK, methods=("PATCH",), path="/Systems"))
    request = redfish_lab.attach(None, model="A100")
    task = asyncio.Task(adapter.attach(request))
    await waiting.eventually(lambda: service.tree.list_members(paths.TASKS))
    again = await redfish_lab.connect(service, parameters={"profile": "constrained"})
    with pytest.raises(errors.Aborted) as refused:
        await again.attach(redfish_lab.attach(None, model="A100"))
    assert refused.value.reason == errors.Reason.OPERATION_PENDING
    # On the other host nothing is under way.
    assert (await again.attach(redfish_lab.attach(None, "h2", model="A100"))).error is None
    await service.wait_until_settled()
    await task
    assert [hosts for hosts in service.connections().values() if hosts == ["h1"]] == [["h1"]]


async def test_a_device_cannot_be_named(redfish_lab):
    _, adapter = await serve(redfish_lab)
    with pytest.raises(errors.Unimplemented, match="by model"):
        await adapter.attach(redfish_lab.attach("gpu-1"))
