"""The deployment without Helm: namespace, CRDs, RBAC, DeviceClasses and policies from files.

The CRDs are the chart's own files; the others are rendered from the chart (`deploy/render`). Clusters with classic
allocation get other classes and policies, and a further role.
"""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec
import yaml

from drawbar.mocks.cluster import errors
from drawbar.mocks.kube import kinds

_MOCKS = Path(__file__).resolve().parents[1]
FOLDERS = (_MOCKS / "deploy", _MOCKS.parents[2] / "deploy")
"""The folders of the files: in an installed wheel, and in the repository."""
ORDER = (
    "manifests/namespace.yaml",
    "drawbar/definitions",
    "manifests/controller-rbac.yaml",
    "manifests/node-rbac.yaml",
)
"""The files that others depend on come first."""
MODERN = "v1"
CLASSES = {
    MODERN: ("manifests/deviceclasses.yaml",),
    "v1alpha3": ("manifests/classic/controller-classic.yaml", "manifests/classic/deviceclasses.yaml"),
    "v1alpha2": ("manifests/classic/controller-classic.yaml", "manifests/classic/resourceclasses.yaml"),
}
"""The files for each served version of `resource.k8s.io`."""
POLICIES = "manifests/policies.yaml"
CLASSIC_POLICIES = "manifests/classic/policies.yaml"

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader of libyaml is ten times as fast. A deeply nested file crashes it, so read only our own files."""
_RBAC = {"group": "rbac.authorization.k8s.io", "version": "v1"}
_ADMISSION = {"group": "admissionregistration.k8s.io", "version": "v1"}
KINDS = {
    kind.kind: kind
    for kind in (
        kinds.NAMESPACE,
        kinds.Kind(
            group="apiextensions.k8s.io",
            kind="CustomResourceDefinition",
            plural="customresourcedefinitions",
            namespaced=False,
        ),
        kinds.DEVICE_CLASS,
        kinds.RESOURCE_CLASS,
        kinds.Kind(group="", version="v1", kind="ServiceAccount", plural="serviceaccounts"),
        kinds.Kind(**_RBAC, kind="Role", plural="roles", namespaced=True),
        kinds.Kind(**_RBAC, kind="RoleBinding", plural="rolebindings", namespaced=True),
        kinds.Kind(**_RBAC, kind="ClusterRole", plural="clusterroles", namespaced=False),
        kinds.Kind(**_RBAC, kind="ClusterRoleBinding", plural="clusterrolebindings", namespaced=False),
        kinds.Kind(
            **_ADMISSION,
            kind="ValidatingAdmissionPolicy",
            plural="validatingadmissionpolicies",
            namespaced=False,
        ),
        kinds.Kind(
            **_ADMISSION,
            kind="ValidatingAdmissionPolicyBinding",
            plural="validatingadmissionpolicybindings",
            namespaced=False,
        ),
    )
}


class Creator(Protocol):
    """A client that can create objects: that of a driver under test, or `drawbar.mocks.kube.client`."""

    async def create(
        self, kind: Any, body: object, *, into: type[dict[str, Any]], namespace: str | None = None
    ) -> dict[str, Any]:
        """Create an object; return it as stored."""


async def apply(api: Creator, *, policies: bool = False, version: str = MODERN) -> None:
    """Create all objects in an empty API server.

    Args:
        api: a client with all rights.
        policies: also create the admission policies, which restrict each daemon to its own objects.
        version: the served version of `resource.k8s.io`.

    Raises:
        errors.ClusterError: a file is missing, or contains an object of an unknown kind.
        kube.errors.KubeError: the API server refuses an object.
    """
    for document in documents(folder(), policies=policies, version=version):
        served = KINDS.get(document["kind"])
        if served is None:
            raise errors.ClusterError(
                f"deploy/ holds a {document['kind']}, which a cluster of doubles cannot apply"
            )
        kind = dataclasses.replace(served, version=document["apiVersion"].rpartition("/")[2])
        await api.create(kind, document, namespace=document["metadata"].get("namespace"), into=dict[str, Any])


def folder() -> Path:
    """Return the folder of the files.

    Raises:
        errors.ClusterError: there is no such folder.
    """
    manifests = next((each for each in FOLDERS if (each / ORDER[0]).is_file()), None)
    if manifests is None:
        raise errors.ClusterError(
            f"the deployment files are neither in {FOLDERS[0]} nor in {FOLDERS[1]}: reinstall drawbar"
        )
    return manifests


def documents(deploy: Path, *, policies: bool = False, version: str = MODERN) -> Iterator[dict[str, Any]]:
    """Yield all objects of the files, in an order for creation."""
    pinned = (POLICIES if version == MODERN else CLASSIC_POLICIES,) if policies else ()
    for name in (*ORDER, *CLASSES[version], *pinned):
        path = deploy / name
        for file in [path] if path.is_file() else sorted(path.glob("*.yaml")):
            yield from msgspec.json.decode(_read(file))


@functools.cache
def _read(file: Path) -> bytes:
    """Return the objects of a file as JSON, whose decoding is a hundred times as fast.

    Test suites make many clusters.
    """
    return msgspec.json.encode(list(yaml.load_all(file.read_text(encoding="utf-8"), Loader=_LOADER)))
