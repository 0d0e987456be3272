"""What the controller writes on an attachment when it makes it."""

import pytest

from drawbar.driver.api import fabrics
from drawbar.driver.api.attachments import Clean
from drawbar.driver.controller import names
from drawbar.driver.controller.attachments import identities, statements
from drawbar.fabric import contract

POLICY = fabrics.CleanPolicy(nvme=Clean.RESET, cxl_memory=Clean.NONE)
FABRIC = fabrics.FabricSpec(
    adapter="a", endpoint="e", driver="d.example", policy=fabrics.Policy(clean=POLICY)
)


@pytest.mark.parametrize(
    ("device_class", "clean"),
    [
        (contract.DeviceClass.NVME, "reset"),
        (contract.DeviceClass.CXL_MEMORY, "none"),
        (contract.DeviceClass.GPU, None),
    ],
)
def test_an_attachment_carries_how_its_fabric_has_such_devices_cleaned(device_class, clean):
    device = contract.Device(id="d1", device_class=device_class, model="m")
    key = names.DeviceKey(fabric="f", device="d1")
    spec = statements.held_by_hand(FABRIC, key, device, "node-1", "h1", identity=identities.identify(device))[
        "spec"
    ]
    assert spec.get("clean") == clean
    assert spec["driver"] == "d.example"
