"""A container runtime that executes nothing, so that a real kubelet runs on a machine without one.

    python -m drawbar.mocks.containerruntime SOCKET LOG CDI_DIRECTORY

Sandboxes and containers are kept in memory, and a container runs from StartContainer until it is stopped.
CreateContainer resolves the CDI names that the kubelet passes on against the files of CDI_DIRECTORY, as a runtime does,
and fails where a name is unknown; it appends one JSON line to LOG: `pod`, `container`, `cdi` (the names) and `spec` (an
OCI runtime spec with the edits of the CDI files).

Not emulated: images (every name is present), networks, logs, exec, statistics, containers that exit by themselves.

Source: Container Runtime Interface v1 (`proto/drawbar/proto/kubelet/cri/v1/api.proto`).
"""
# ruff: noqa: ARG002, N802 - methods have the names and parameters of the gRPC services

import json
import signal
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from drawbar.mocks.kubelet import errors, runtime
from drawbar.proto.kubelet.cri.v1 import api_pb2 as cri
from drawbar.proto.kubelet.cri.v1 import api_pb2_grpc as cri_grpc

THREADS = 16
STOP_SECONDS = 2.0
ADDRESS = "10.0.0.2"
IMAGE = "image"


@dataclass(slots=True, kw_only=True)
class _Sandbox:
    config: cri.PodSandboxConfig
    created_at: int
    ready: bool = True

    @property
    def state(self) -> Any:
        return cri.SANDBOX_READY if self.ready else cri.SANDBOX_NOTREADY


@dataclass(slots=True, kw_only=True)
class _Container:
    config: cri.ContainerConfig
    sandbox: str
    created_at: int
    started_at: int = 0
    finished_at: int = 0

    @property
    def state(self) -> Any:
        if self.finished_at:
            return cri.CONTAINER_EXITED
        return cri.CONTAINER_RUNNING if self.started_at else cri.CONTAINER_CREATED

    def finish(self) -> None:
        if self.started_at and not self.finished_at:
            self.finished_at = time.time_ns()


class Runtime(cri_grpc.RuntimeServiceServicer):
    """Sandboxes and containers."""

    def __init__(self, log: Path, cdi: Path) -> None:
        self._log, self._cdi = log, cdi
        self._lock = threading.Lock()
        self._sandboxes: dict[str, _Sandbox] = {}
        self._containers: dict[str, _Container] = {}

    def Version(self, request: Any, context: Any) -> cri.VersionResponse:
        """Return the name and version of this runtime."""
        return cri.VersionResponse(
            version="0.1.0", runtime_name="drawbar-double", runtime_version="1.0.0", runtime_api_version="v1"
        )

    def Status(self, request: Any, context: Any) -> cri.StatusResponse:
        """Return that the runtime is ready."""
        conditions = [
            cri.RuntimeCondition(type=kind, status=True) for kind in ("RuntimeReady", "NetworkReady")
        ]
        return cri.StatusResponse(status=cri.RuntimeStatus(conditions=conditions))

    def RuntimeConfig(self, request: Any, context: Any) -> cri.RuntimeConfigResponse:
        """Return the cgroup driver."""
        return cri.RuntimeConfigResponse(linux=cri.LinuxRuntimeConfiguration(cgroup_driver=cri.CGROUPFS))

    def UpdateRuntimeConfig(self, request: Any, context: Any) -> cri.UpdateRuntimeConfigResponse:
        """Do nothing."""
        return cri.UpdateRuntimeConfigResponse()

    def RunPodSandbox(self, request: Any, context: Any) -> cri.RunPodSandboxResponse:
        """Create a sandbox."""
        name = uuid.uuid4().hex
        with self._lock:
            self._sandboxes[name] = _Sandbox(config=request.config, created_at=time.time_ns())
        return cri.RunPodSandboxResponse(pod_sandbox_id=name)

    def StopPodSandbox(self, request: Any, context: Any) -> cri.StopPodSandboxResponse:
        """Stop a sandbox and its containers."""
        with self._lock:
            if request.pod_sandbox_id in self._sandboxes:
                self._sandboxes[request.pod_sandbox_id].ready = False
            for container in self._containers.values():
                if container.sandbox == request.pod_sandbox_id:
                    container.finish()
        return cri.StopPodSandboxResponse()

    def RemovePodSandbox(self, request: Any, context: Any) -> cri.RemovePodSandboxResponse:
        """Delete a sandbox and its containers."""
        with self._lock:
            self._sandboxes.pop(request.pod_sandbox_id, None)
            for name, container in tuple(self._containers.items()):
                if container.sandbox == request.pod_sandbox_id:
                    del self._containers[name]
        return cri.RemovePodSandboxResponse()

    def PodSandboxStatus(self, request: Any, context: Any) -> cri.PodSandboxStatusResponse:
        """Return the status of a sandbox."""
        with self._lock:
            sandbox = self._sandboxes.get(request.pod_sandbox_id)
        if sandbox is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"sandbox {request.pod_sandbox_id} is not there")
            raise AssertionError("abort raises")
        status = cri.PodSandboxStatus(
            id=request.pod_sandbox_id,
            metadata=sandbox.config.metadata,
            state=sandbox.state,
            created_at=sandbox.created_at,
            network=cri.PodSandboxNetworkStatus(ip=ADDRESS),
            labels=sandbox.config.labels,
            annotations=sandbox.config.annotations,
        )
        return cri.PodSandboxStatusResponse(status=status)

    def ListPodSandbox(self, request: Any, context: Any) -> cri.ListPodSandboxResponse:
        """Return the sandboxes that match a filter."""
        wanted = request.filter
        with self._lock:
            items = [
                cri.PodSandbox(
                    id=name,
                    metadata=sandbox.config.metadata,
                    state=sandbox.state,
                    created_at=sandbox.created_at,
                    labels=sandbox.config.labels,
                    annotations=sandbox.config.annotations,
                )
                for name, sandbox in self._sandboxes.items()
                if wanted.id in ("", name)
                and (not wanted.HasField("state") or wanted.state.state == sandbox.state)
                and _fits(wanted.label_selector, sandbox.config.labels)
            ]
        return cri.ListPodSandboxResponse(items=items)

    def CreateContainer(self, request: Any, context: Any) -> cri.CreateContainerResponse:
        """Create a container; fail if a CDI name cannot be resolved."""
        with self._lock:
            sandbox = self._sandboxes.get(request.pod_sandbox_id)
        if sandbox is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"sandbox {request.pod_sandbox_id} is not there")
            raise AssertionError("abort raises")
        config = request.config
        names = [device.name for device in config.CDI_devices]
        environment = [
            {"name": variable.key, "value": variable.value.decode(errors="replace")}
            for variable in config.envs
        ]
        container = {"command": [*config.command, *config.args], "env": environment}
        try:
            spec = runtime.create(container, names, directories=[self._cdi], check_device_nodes=False)
        except errors.RuntimeFailure as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
        name = uuid.uuid4().hex
        line = {
            "pod": sandbox.config.metadata.name,
            "container": config.metadata.name,
            "cdi": names,
            "spec": spec,
        }
        with self._lock:
            self._containers[name] = _Container(
                config=config, sandbox=request.pod_sandbox_id, created_at=time.time_ns()
            )
            with self._log.open("a") as log:
                log.write(json.dumps(line) + "\n")
        return cri.CreateContainerResponse(container_id=name)

    def StartContainer(self, request: Any, context: Any) -> cri.StartContainerResponse:
        """Start a container."""
        self._container(request.container_id, context).started_at = time.time_ns()
        return cri.StartContainerResponse()

    def StopContainer(self, request: Any, context: Any) -> cri.StopContainerResponse:
        """Stop a container at once."""
        with self._lock:
            container = self._containers.get(request.container_id)
        if container is not None:
            container.finish()
        return cri.StopContainerResponse()

    def RemoveContainer(self, request: Any, context: Any) -> cri.RemoveContainerResponse:
        """Delete a container."""
        with self._lock:
            self._containers.pop(request.container_id, None)
        return cri.RemoveContainerResponse()

    def ContainerStatus(self, request: Any, context: Any) -> cri.ContainerStatusResponse:
        """Return the status of a container."""
        container = self._container(request.container_id, context)
        status = cri.ContainerStatus(
            id=request.container_id,
            metadata=container.config.metadata,
            state=container.state,
            created_at=container.created_at,
            started_at=container.started_at,
            finished_at=container.finished_at,
            image=container.config.image,
            image_ref=IMAGE,
            image_id=IMAGE,
            reason="Completed" if container.finished_at else "",
            labels=container.config.labels,
            annotations=container.config.annotations,
        )
        return cri.ContainerStatusResponse(status=status)

    def ListContainers(self, request: Any, context: Any) -> cri.ListContainersResponse:
        """Return the containers that match a filter."""
        wanted = request.filter
        with self._lock:
            containers = [
                cri.Container(
                    id=name,
                    pod_sandbox_id=container.sandbox,
                    metadata=container.config.metadata,
                    image=container.config.image,
                    image_ref=IMAGE,
                    image_id=IMAGE,
                    state=container.state,
                    created_at=container.created_at,
                    labels=container.config.labels,
                    annotations=container.config.annotations,
                )
                for name, container in self._containers.items()
                if wanted.id in ("", name)
                and wanted.pod_sandbox_id in ("", container.sandbox)
                and (not wanted.HasField("state") or wanted.state.state == container.state)
                and _fits(wanted.label_selector, container.config.labels)
            ]
        return cri.ListContainersResponse(containers=containers)

    def UpdateContainerResources(self, request: Any, context: Any) -> cri.UpdateContainerResourcesResponse:
        """Do nothing, as there are no resources to update."""
        return cri.UpdateContainerResourcesResponse()

    def ListContainerStats(self, request: Any, context: Any) -> cri.ListContainerStatsResponse:
        """Return no statistics."""
        return cri.ListContainerStatsResponse()

    def ListPodSandboxStats(self, request: Any, context: Any) -> cri.ListPodSandboxStatsResponse:
        """Return no statistics."""
        return cri.ListPodSandboxStatsResponse()

    def ListMetricDescriptors(self, request: Any, context: Any) -> cri.ListMetricDescriptorsResponse:
        """Return no metrics."""
        return cri.ListMetricDescriptorsResponse()

    def ListPodSandboxMetrics(self, request: Any, context: Any) -> cri.ListPodSandboxMetricsResponse:
        """Return no metrics."""
        return cri.ListPodSandboxMetricsResponse()

    def _container(self, name: str, context: Any) -> _Container:
        with self._lock:
            container = self._containers.get(name)
        if container is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"container {name} is not there")
            raise AssertionError("abort raises")
        return container


class Images(cri_grpc.ImageServiceServicer):
    """Every image is present."""

    def ListImages(self, request: Any, context: Any) -> cri.ListImagesResponse:
        """Return one image."""
        return cri.ListImagesResponse(images=[cri.Image(id=IMAGE, repo_tags=["none:latest"], size=1)])

    def ImageStatus(self, request: Any, context: Any) -> cri.ImageStatusResponse:
        """Return that the image is present."""
        image = cri.Image(id=IMAGE, repo_tags=[request.image.image], size=1, username="root")
        return cri.ImageStatusResponse(image=image)

    def PullImage(self, request: Any, context: Any) -> cri.PullImageResponse:
        """Do nothing, as every image is present."""
        return cri.PullImageResponse(image_ref=IMAGE)

    def ImageFsInfo(self, request: Any, context: Any) -> cri.ImageFsInfoResponse:
        """Return the usage of an almost empty file system."""
        usage = cri.FilesystemUsage(
            timestamp=time.time_ns(),
            fs_id=cri.FilesystemIdentifier(mountpoint="/"),
            used_bytes=cri.UInt64Value(value=1),
            inodes_used=cri.UInt64Value(value=1),
        )
        return cri.ImageFsInfoResponse(image_filesystems=[usage], container_filesystems=[usage])


def _fits(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())


def serve(socket: Path, log: Path, cdi: Path) -> grpc.Server:
    """Start both services on a UNIX socket; `stop` of the result ends them."""
    server = grpc.server(futures.ThreadPoolExecutor(THREADS))
    cri_grpc.add_RuntimeServiceServicer_to_server(Runtime(log, cdi), server)
    cri_grpc.add_ImageServiceServicer_to_server(Images(), server)
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    return server


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM."""
    if len(arguments) != 3:
        sys.stderr.write("usage: python -m drawbar.mocks.containerruntime SOCKET LOG CDI_DIRECTORY\n")
        return 2
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    server = serve(*map(Path, arguments))
    ended.wait()
    server.stop(STOP_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
