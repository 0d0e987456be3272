"""Which cards stand behind the extended resources of real device plugins."""

import pytest

from drawbar.driver.api import deviceplugins
from drawbar.fabric.classes import DeviceClass

H100 = (0x10DE, DeviceClass.GPU)
CONNECTX = (0x15B3, DeviceClass.NIC)
INSTINCT = (0x1002, DeviceClass.ACCELERATOR)
ALVEO = (0x10EE, DeviceClass.FPGA)
FLEX = (0x8086, DeviceClass.GPU)
PAC = (0x8086, DeviceClass.FPGA)
E810 = (0x8086, DeviceClass.NIC)
QAT = (0x8086, DeviceClass.OTHER)
ACC100 = (0x8086, DeviceClass.ACCELERATOR)
GAUDI = (0x1DA3, DeviceClass.ACCELERATOR)
DISK = (0x144D, DeviceClass.NVME)
CARDS = {
    "H100": H100,
    "ConnectX": CONNECTX,
    "Instinct": INSTINCT,
    "Alveo": ALVEO,
    "Flex": FLEX,
    "PAC": PAC,
    "E810": E810,
    "QAT": QAT,
    "ACC100": ACC100,
    "Gaudi": GAUDI,
    "disk": DISK,
}


def meant(resource, *settings):
    rows = [deviceplugins.parse(setting) for setting in settings]
    cards = deviceplugins.find_cards(resource, rows)
    if cards is None:
        return None
    return {name for name, card in CARDS.items() if any(each.has(*card) for each in cards)}


@pytest.mark.parametrize(
    ("resource", "names"),
    [
        ("nvidia.com/gpu", {"H100"}),
        ("nvidia.com/gpu.shared", {"H100"}),
        ("nvidia.com/mig-1g.10gb", {"H100"}),
        ("nvidia.com/GH100_H100_PCIE", {"H100", "ConnectX"}),
        ("nvidia.com/mlnxnics", {"H100", "ConnectX"}),
        ("amd.com/gpu", {"Instinct"}),
        ("amd.com/cpx_nps4", {"Instinct", "Alveo"}),
        ("amd.com/xilinx_u250_gen3x16_xdma_shell_4_1-0", {"Alveo"}),
        ("gpu.intel.com/i915", {"Flex"}),
        ("gpu.intel.com/xe", {"Flex"}),
        ("fpga.intel.com/region-ce48969398f05f33946d560708be108a", {"PAC", "ACC100"}),
        ("qat.intel.com/generic", {"QAT", "ACC100"}),
        ("sgx.intel.com/epc", set()),
        ("habana.ai/gaudi", {"Gaudi"}),
        ("intel.com/intel_sriov_netdevice", {"ConnectX", "E810", "PAC", "QAT", "ACC100"}),
        ("openshift.io/mlxnics", {"ConnectX", "E810"}),
        ("rdma/hca_shared_devices_a", {"ConnectX", "E810"}),
        ("devices.kubevirt.io/kvm", set()),
        ("sriov.example.com/blue", None),
        # DRA drivers whose devices show no address.
        ("gpu.nvidia.com/", {"H100"}),
        ("compute-domain.nvidia.com/", set()),
        ("gpu.amd.com/", {"Instinct"}),
        ("gaudi.intel.com/", {"Gaudi"}),
        ("dra.cpu/", None),
    ],
)
def test_a_resource_means_the_cards_of_its_plugin(resource, names):
    assert meant(resource) == names


@pytest.mark.parametrize(
    ("setting", "resource", "names"),
    [
        ("sriov.example.com/*=nic", "sriov.example.com/blue", {"ConnectX", "E810"}),
        ("x.io/fec=0x8086", "x.io/fec", {"Flex", "PAC", "E810", "QAT", "ACC100"}),
        ("x.io/fec=0x8086:accelerator", "x.io/fec", {"ACC100"}),
        ("nvidia.com/gpu=none", "nvidia.com/gpu", set()),
    ],
)
def test_the_administrators_rows_come_first(setting, resource, names):
    assert meant(resource, setting) == names


@pytest.mark.parametrize(
    "setting",
    [
        *("", "nic", "y=nic", "x.io/y", "x.io/y=", "x.io/y=toaster", "x.io/y=bridge"),
        *("x.io/y=0x80", "x.io/y=0x8086:", "x.io/y=:nic", "x.io/y=0x8086nic"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_text(setting):
    fault = deviceplugins.parse(setting)
    assert isinstance(fault, str)
    assert repr(setting) in fault
