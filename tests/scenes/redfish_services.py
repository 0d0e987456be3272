"""Small Redfish services for tests of odd answers: two hosts and two GPUs on a fabric, or one machine of resource blocks."""

import json

from aiohttp import web
from tests.scenes import redfish_servers
from tests.scenes.redfish_servers import ROOT, link, put_gpu, put_host

from drawbar.fabric import contract

FABRIC = f"{ROOT}/Fabrics/PCIe"
ENDPOINTS, ZONES = f"{FABRIC}/Endpoints", f"{FABRIC}/Zones"
CARD = f"{ROOT}/Chassis/c/PCIeDevices/gpu-1"
BLOCKS = f"{ROOT}/CompositionService/ResourceBlocks"
GPU_1, GPU_2 = "PCIe.gpu-1", "PCIe.gpu-2"


def service(zones=()):
    made = redfish_servers.Service()
    ends = {"h1": put_host(made, "h1"), "h2": put_host(made, "h2")}
    ends |= {"gpu-1": put_gpu(made), "gpu-2": put_gpu(made, "gpu-2", "S2")}
    made.put_fabric("PCIe", ends, zones)
    return made


def composition():
    made = redfish_servers.Service()

    def processor(block, kind):
        uri = f"{BLOCKS}/{block}/Processors/1"
        made.put(uri, **{"@odata.type": "#Processor.v1_20_0.Processor"}, ProcessorType=kind, Model=kind)
        return [link(uri)]

    blocks = {
        "device": {"ResourceBlockType": ["Processor"], "Processors": processor("device", "GPU")},
        "machine": {"ResourceBlockType": ["Compute"], "Processors": processor("machine", "CPU")},
    }
    made.put_blocks(blocks, {"s1": ["machine"]})
    return made


def answer(body, status=200, **headers):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): content for name, content in headers.items()}
    return web.Response(status=status, body=content, headers={"Content-Type": "application/json"} | named)


def attach(device_id=GPU_1, host_id="h1"):
    return contract.AttachRequest(request_id="r1", device_id=device_id, host_id=host_id)


def detach(device_id=GPU_1, host_id="h1"):
    return contract.DetachRequest(request_id="d1", device_id=device_id, host_id=host_id, host_prepared=True)
