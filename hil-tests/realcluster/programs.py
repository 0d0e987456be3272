"""The components' command lines and configuration files, by release. Pure: nothing is started or written here.

All listen on 127.0.0.1 alone. Callers are known to the API server by static tokens, each as the user and groups that
the component has on a cluster made by kubeadm; the controllers act under service accounts of their own, and kubelets
as `system:node:NAME`, so that the Node authorizer and NodeRestriction apply to them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from realcluster.binaries import Binaries, Release

CLASSIC_UNTIL = 31
"""The last minor release in which a driver's controller could allocate (KEP-3063)."""
GATES_FOR_CLASSIC = {"DynamicResourceAllocation": True, "DRAControlPlaneController": True}
GATES_FOR_BINDING = {
    "DRADeviceBindingConditions": True,
    "DRAResourceClaimDeviceStatus": True,
    "DRADeviceTaints": True,
}
"""What 1.34 and 1.35 want set; on by default since 1.36."""
GATES_FOR_RULES = {"DRADeviceTaintRules": True}
ADMIN = "admin"
KCM = "system:kube-controller-manager"
SCHEDULER = "system:kube-scheduler"
NODE_PREFIX = "system:node:"
SERVICE_RANGE = "10.96.0.0/16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """On 127.0.0.1."""

    apiserver: int
    etcd: int
    etcd_peer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One control plane.

    Attributes:
        binaries: what is started.
        folder: for state and logs.
        ports: where it listens.
        gates: feature gates of all components.
        binding_timeout_seconds: how long the scheduler waits for binding conditions; None: its default, 600.
    """

    binaries: Binaries
    folder: Path
    ports: Ports
    gates: Mapping[str, bool] = field(default_factory=dict)
    binding_timeout_seconds: int | None = None

    @property
    def certificates(self) -> Path:
        """Return the place of the API server's self-signed certificate."""
        return self.folder / "certificates"

    @property
    def etcd_data(self) -> Path:
        """Return the folder of etcd's state; a copy is a backup if it was made while etcd did not run."""
        return self.folder / "etcd"

    @property
    def server(self) -> str:
        """Return the API server's URL."""
        return f"https://127.0.0.1:{self.ports.apiserver}"

    def kubeconfig(self, user: str) -> Path:
        """Return the path of a user's kubeconfig."""
        return self.folder / f"{user.replace(':', '-')}.kubeconfig"


def default_gates(release: Release) -> dict[str, bool]:
    """Return the gates that Drawbar needs of this release beyond its defaults; see docs/doctor.md."""
    if release.minor <= CLASSIC_UNTIL:
        return dict(GATES_FOR_CLASSIC)
    if release.minor < 36:
        return dict(GATES_FOR_BINDING)
    return dict(GATES_FOR_RULES) if release.minor == 36 else {}


def contract_gates(release: Release) -> dict[str, bool]:
    """Return the gates that the contract suite has rules for, beside a release's defaults.

    Device taints and binding conditions of 1.34 and 1.35 are alpha, and differ from those of 1.36 in their limits.
    """
    return {} if CLASSIC_UNTIL < release.minor < 36 else default_gates(release)


def resource_version(release: Release) -> str:
    """Return the version of `resource.k8s.io` that Drawbar uses."""
    if release.minor > CLASSIC_UNTIL:
        return "v1"
    return "v1alpha3" if release.minor == CLASSIC_UNTIL else "v1alpha2"


def runtime_config(release: Release) -> str:
    """Return the versions of `resource.k8s.io` that are served beside the default ones, as a flag's value."""
    classic = release.minor <= CLASSIC_UNTIL
    versions = [resource_version(release)] if classic else ["v1beta2", "v1beta1", "v1alpha3"]
    return ",".join(f"resource.k8s.io/{version}=true" for version in versions)


def etcd(settings: Settings) -> list[str]:
    """Return etcd's command line, without fsync: data are lost only where the machine stops."""
    client = f"http://127.0.0.1:{settings.ports.etcd}"
    peer = f"http://127.0.0.1:{settings.ports.etcd_peer}"
    return [
        str(settings.binaries.path("etcd")),
        f"--data-dir={settings.etcd_data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
    ]


def apiserver(settings: Settings) -> list[str]:
    """Return the API server's command line, with the default plugins and, as in kubeadm, NodeRestriction."""
    key = settings.folder / "service-account.key"
    return [
        str(settings.binaries.path("kube-apiserver")),
        f"--etcd-servers=http://127.0.0.1:{settings.ports.etcd}",
        "--bind-address=127.0.0.1",
        f"--secure-port={settings.ports.apiserver}",
        f"--cert-dir={settings.certificates}",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={settings.folder / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--allow-privileged=true",
        # Tests of one client ask more at once than people do.
        "--max-requests-inflight=800",
        f"--runtime-config={runtime_config(settings.binaries.release)}",
        *_gates(settings.gates),
    ]


def controller_manager(settings: Settings) -> list[str]:
    """Return kube-controller-manager's command line, with a service account for each controller."""
    kubeconfig = settings.kubeconfig(KCM)
    return [
        str(settings.binaries.path("kube-controller-manager")),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--authentication-skip-lookup=true",
        f"--service-account-private-key-file={settings.folder / 'service-account.key'}",
        f"--root-ca-file={settings.certificates / 'apiserver.crt'}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--secure-port=0",
        *_gates(settings.gates),
    ]


def scheduler(settings: Settings) -> list[str]:
    """Return the scheduler's command line, with the file that `scheduler_configuration` writes."""
    return [
        str(settings.binaries.path("kube-scheduler")),
        f"--config={settings.folder / 'scheduler.yaml'}",
        "--authentication-skip-lookup=true",
        "--secure-port=0",
        *_gates(scheduler_gates(settings)),
    ]


def scheduler_gates(settings: Settings) -> dict[str, bool]:
    """Return the cluster's gates, without DeviceTaintRules on 1.36.

    With them its scheduler ends at the first change of a ResourceSlice while there is a rule: it
    lists rules in v1beta2 and takes them for v1alpha3's type (`typedSlice` in
    k8s.io/dynamic-resource-allocation/resourceslice/tracker; seen in 1.36.2).
    """
    without = GATES_FOR_RULES if settings.binaries.release.minor == 36 else {}
    return {name: on for name, on in settings.gates.items() if name not in without}


def scheduler_configuration(settings: Settings) -> dict[str, Any]:
    """Return a KubeSchedulerConfiguration."""
    content: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(settings.kubeconfig(SCHEDULER))},
    }
    if settings.binding_timeout_seconds is not None:
        arguments = {"bindingTimeout": f"{settings.binding_timeout_seconds}s"}
        plugin = {"name": "DynamicResources", "args": arguments}
        content["profiles"] = [{"schedulerName": "default-scheduler", "pluginConfig": [plugin]}]
    return content


def tokens(by_user: Mapping[str, str]) -> str:
    """Return the content of the file of static tokens.

    Args:
        by_user: by user name the token.
    """
    return "".join(
        f'{token},{user},{user},"{",".join(groups(user))}"\n' for user, token in sorted(by_user.items())
    )


def groups(user: str) -> Sequence[str]:
    """Return the groups of a static user."""
    if user == ADMIN:
        return ("system:masters",)
    return ("system:nodes",) if user.startswith(NODE_PREFIX) else ()


def kubeconfig(server: str, authority: str, user: str, token: str) -> dict[str, Any]:
    """Return a kubeconfig for one user.

    Args:
        server: the URL.
        authority: the path of the certificate that the server's is signed by.
        user: its name.
        token: its bearer token.
    """
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "real", "cluster": {"server": server, "certificate-authority": authority}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "real", "context": {"cluster": "real", "user": user}}],
        "current-context": "real",
    }


def kubelet(binaries: Binaries, *, node: str, folder: Path, kubeconfig: Path, root: Path) -> list[str]:
    """Return a kubelet's command line; its configuration is in `kubelet.yaml` of its folder."""
    return [
        str(binaries.path("kubelet")),
        f"--kubeconfig={kubeconfig}",
        f"--config={folder / 'kubelet.yaml'}",
        f"--root-dir={root}",
        f"--cert-dir={folder / 'certificates'}",
        f"--hostname-override={node}",
    ]


def kubelet_configuration(
    *, runtime: str, port: int, gates: Mapping[str, bool], pod_manifests: Path | None = None
) -> dict[str, Any]:
    """Return a KubeletConfiguration that makes no cgroups and changes nothing of the machine.

    Args:
        runtime: the endpoint of the container runtime, such as `unix:///run/cri.sock`.
        port: on 127.0.0.1.
        gates: feature gates.
        pod_manifests: a folder of static pods, if there is one.
    """
    content: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": runtime,
        "address": "127.0.0.1",
        "port": port,
        "readOnlyPort": 0,
        "healthzPort": 0,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "localStorageCapacityIsolation": False,
        "resolvConf": "",
        "syncFrequency": "10s",
        "featureGates": dict(gates),
    }
    if pod_manifests is not None:
        content["staticPodPath"] = str(pod_manifests)
    return content


def kubelet_gates(release: Release, gates: Mapping[str, bool]) -> dict[str, bool]:
    """Return the feature gates that kubelets know and need."""
    if release.minor <= CLASSIC_UNTIL:
        return {name: on for name, on in gates.items() if name in GATES_FOR_CLASSIC}
    # cgroup version 1 is refused by default since 1.35, and is what some machines have.
    return {"ResourceHealthStatus": True}


def kubelet_extras(release: Release) -> dict[str, Any]:
    """Return the fields of a KubeletConfiguration that only some releases know."""
    return {"failCgroupV1": False} if release.minor >= CLASSIC_UNTIL else {}


def as_json(content: Mapping[str, Any]) -> str:
    """Return the content as JSON, which components read as YAML."""
    return json.dumps(content, indent=2) + "\n"


def _gates(gates: Mapping[str, bool]) -> list[str]:
    if not gates:
        return []
    return ["--feature-gates=" + ",".join(f"{name}={str(on).lower()}" for name, on in sorted(gates.items()))]
