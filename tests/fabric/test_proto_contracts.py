"""The wire: method paths that other programs depend on, and generated code that is up to date."""

import importlib
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "proto"


@pytest.mark.parametrize(
    ("module", "paths"),
    [
        (
            "kubelet.pluginregistration.v1.api",
            [
                "/pluginregistration.Registration/GetInfo",
                "/pluginregistration.Registration/NotifyRegistrationStatus",
            ],
        ),
        (
            "kubelet.dra.v1.api",
            [
                "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
                "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources",
            ],
        ),
        (
            "kubelet.dra.v1beta1.api",
            [
                "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources",
                "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources",
            ],
        ),
        (
            "kubelet.dra.v1alpha2.api",
            ["/v1alpha2.Node/NodePrepareResource", "/v1alpha2.Node/NodeUnprepareResource"],
        ),
        (
            "kubelet.dra.v1alpha3.api",
            ["/v1alpha3.Node/NodePrepareResources", "/v1alpha3.Node/NodeUnprepareResources"],
        ),
        ("kubelet.drahealth.v1.api", ["/v1.DRAResourceHealth/NodeWatchResources"]),
        ("kubelet.drahealth.v1alpha1.api", ["/v1alpha1.DRAResourceHealth/NodeWatchResources"]),
        (
            "fabric.v1alpha1.fabric",
            [
                "/drawbar.fabric.v1alpha1.Identity/GetPluginInfo",
                "/drawbar.fabric.v1alpha1.Identity/GetCapabilities",
                "/drawbar.fabric.v1alpha1.Identity/Probe",
                "/drawbar.fabric.v1alpha1.Identity/Configure",
                "/drawbar.fabric.v1alpha1.FabricManager/ListHosts",
                "/drawbar.fabric.v1alpha1.FabricManager/ListDevices",
                "/drawbar.fabric.v1alpha1.FabricManager/GetDevice",
                "/drawbar.fabric.v1alpha1.FabricManager/AttachDevice",
                "/drawbar.fabric.v1alpha1.FabricManager/DetachDevice",
                "/drawbar.fabric.v1alpha1.FabricManager/GetOperation",
                "/drawbar.fabric.v1alpha1.FabricManager/ListOperations",
                "/drawbar.fabric.v1alpha1.FabricManager/CancelOperation",
                "/drawbar.fabric.v1alpha1.FabricManager/Watch",
                "/drawbar.fabric.v1alpha1.FabricManager/CreateSlice",
                "/drawbar.fabric.v1alpha1.FabricManager/DeleteSlice",
            ],
        ),
    ],
)
def test_the_full_method_paths_are_those_of_the_wire(module, paths):
    services = importlib.import_module(f"drawbar.proto.{module}_pb2").DESCRIPTOR.services_by_name.values()
    declared = [f"/{service.full_name}/{method.name}" for service in services for method in service.methods]
    assert declared == paths
    importlib.import_module(f"drawbar.proto.{module}_pb2_grpc")


@pytest.mark.parametrize(
    ("module", "message", "fields"),
    [
        ("kubelet.dra.v1.api", "Claim", {"namespace": 1, "uid": 2, "name": 3}),
        (
            "kubelet.dra.v1.api",
            "Device",
            {"request_names": 1, "pool_name": 2, "device_name": 3, "cdi_device_ids": 4, "share_id": 5},
        ),
        (
            "kubelet.dra.v1beta1.api",
            "Device",
            {"request_names": 1, "pool_name": 2, "device_name": 3, "cdi_device_ids": 4},
        ),
        (
            "kubelet.dra.v1alpha2.api",
            "NodePrepareResourceRequest",
            {"namespace": 1, "claim_uid": 2, "claim_name": 3, "resource_handle": 4},
        ),
        ("kubelet.dra.v1alpha2.api", "NodePrepareResourceResponse", {"cdi_devices": 1}),
        (
            "kubelet.dra.v1alpha2.api",
            "NodeUnprepareResourceRequest",
            {"namespace": 1, "claim_uid": 2, "claim_name": 3, "resource_handle": 4},
        ),
        (
            "kubelet.dra.v1alpha3.api",
            "Claim",
            {"namespace": 1, "uid": 2, "name": 3, "resource_handle": 4},
        ),
        ("kubelet.dra.v1alpha3.handles", "NodePrepareResourceResponse", {"cdi_devices": 1, "error": 2}),
        ("kubelet.dra.v1alpha3.devices", "NodePrepareResourceResponse", {"devices": 1, "error": 2}),
        (
            "kubelet.dra.v1alpha3.devices",
            "Device",
            {"request_names": 1, "pool_name": 2, "device_name": 3, "cdi_device_ids": 4},
        ),
        (
            "kubelet.pluginregistration.v1.api",
            "PluginInfo",
            {"type": 1, "name": 2, "endpoint": 3, "supported_versions": 4},
        ),
        (
            "kubelet.drahealth.v1.api",
            "DeviceHealth",
            {
                "device": 1,
                "health": 2,
                "last_updated_time": 3,
                "health_check_timeout_seconds": 4,
                "message": 5,
            },
        ),
    ],
)
def test_the_kubelets_field_numbers_are_kept(module, message, fields):
    descriptor = importlib.import_module(f"drawbar.proto.{module}_pb2").DESCRIPTOR
    numbers = {field.name: field.number for field in descriptor.message_types_by_name[message].fields}
    assert numbers == fields


def test_the_committed_code_matches_the_generator(tmp_path):
    subprocess.run([ROOT / "generate", tmp_path], check=True, capture_output=True)
    made = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*_pb2*")}
    committed = {
        path.relative_to(ROOT): path.read_text()
        for path in ROOT.rglob("*_pb2*")
        if "__pycache__" not in path.parts
    }
    assert made.keys() == committed.keys()
    assert [path for path in made if made[path] != committed[path]] == []
