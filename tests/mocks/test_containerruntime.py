"""The container-runtime double as a kubelet uses it, over its socket."""

import json

import grpc
import pytest

from drawbar.mocks import containerruntime
from drawbar.proto.kubelet.cri.v1 import api_pb2 as cri
from drawbar.proto.kubelet.cri.v1 import api_pb2_grpc as cri_grpc

SPEC = {
    "cdiVersion": "0.6.0",
    "kind": "drawbar.dev/nvme",
    "devices": [{"name": "disk-0", "containerEdits": {"env": ["DISK=SN0"]}}],
}


@pytest.fixture
def calls(tmp_path):
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi" / "disk.json").write_text(json.dumps(SPEC))
    server = containerruntime.serve(tmp_path / "s", tmp_path / "log", tmp_path / "cdi")
    with grpc.insecure_channel(f"unix:{tmp_path / 's'}") as channel:
        yield cri_grpc.RuntimeServiceStub(channel)
    server.stop(None).wait()


def sandbox(calls, **labels):
    metadata = cri.PodSandboxMetadata(name="pod", uid="u", namespace="default")
    config = cri.PodSandboxConfig(metadata=metadata, labels=labels)
    return calls.RunPodSandbox(cri.RunPodSandboxRequest(config=config)).pod_sandbox_id


def container(calls, box, *devices):
    config = cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name="main"),
        envs=[cri.KeyValue(key="A", value=b"1")],
        CDI_devices=[cri.CDIDevice(name=name) for name in devices],
    )
    request = cri.CreateContainerRequest(pod_sandbox_id=box, config=config)
    return calls.CreateContainer(request).container_id


def states(calls):
    return [container.state for container in calls.ListContainers(cri.ListContainersRequest()).containers]


def test_a_container_runs_from_its_start_until_its_sandbox_is_stopped(calls):
    box = sandbox(calls)
    name = container(calls, box)
    assert states(calls) == [cri.CONTAINER_CREATED]
    calls.StartContainer(cri.StartContainerRequest(container_id=name))
    assert states(calls) == [cri.CONTAINER_RUNNING]
    calls.StopPodSandbox(cri.StopPodSandboxRequest(pod_sandbox_id=box))
    assert states(calls) == [cri.CONTAINER_EXITED]
    status = calls.ContainerStatus(cri.ContainerStatusRequest(container_id=name)).status
    assert status.finished_at >= status.started_at > 0
    calls.RemovePodSandbox(cri.RemovePodSandboxRequest(pod_sandbox_id=box))
    assert states(calls) == []


def test_cdi_names_are_resolved_and_their_edits_are_logged(calls, tmp_path):
    container(calls, sandbox(calls), "drawbar.dev/nvme=disk-0")
    (line,) = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert (line["pod"], line["container"], line["cdi"]) == ("pod", "main", ["drawbar.dev/nvme=disk-0"])
    assert line["spec"]["process"]["env"] == ["A=1", "DISK=SN0"]


def test_a_name_that_no_file_defines_fails_the_container(calls):
    with pytest.raises(grpc.RpcError, match="unresolvable CDI devices"):
        container(calls, sandbox(calls), "drawbar.dev/nvme=disk-1")
    assert states(calls) == []


def test_lists_are_filtered_by_id_state_and_labels(calls):
    first, two = sandbox(calls, app="a"), sandbox(calls, app="b")
    calls.StopPodSandbox(cri.StopPodSandboxRequest(pod_sandbox_id=two))

    def list_ids(**chosen):
        request = cri.ListPodSandboxRequest(filter=cri.PodSandboxFilter(**chosen))
        return [each.id for each in calls.ListPodSandbox(request).items]

    assert list_ids(id=first) == [first]
    assert list_ids(label_selector={"app": "b"}) == [two]
    assert list_ids(state=cri.PodSandboxStateValue(state=cri.SANDBOX_READY)) == [first]


def test_unknown_containers_and_sandboxes_are_not_found(calls):
    with pytest.raises(grpc.RpcError) as caught:
        calls.ContainerStatus(cri.ContainerStatusRequest(container_id="x"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    with pytest.raises(grpc.RpcError) as caught:
        calls.PodSandboxStatus(cri.PodSandboxStatusRequest(pod_sandbox_id="x"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
