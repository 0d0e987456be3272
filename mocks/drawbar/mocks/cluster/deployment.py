"""Applies the files that an administrator without Helm applies: namespace, CRDs, RBAC, DeviceClasses, policies.

The CRDs are the chart's own files; the others are what the chart renders (`deploy/render`). Clusters with classic
allocation get other classes and policies, and a further role.
"""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from drawbar.driver.kube import client, kinds
from drawbar.mocks.cluster import errors

_MOCKS = Path(__file__).resolve().parents[1]
PLACES = (_MOCKS / "deploy", _MOCKS.parents[2] / "deploy")
"""In an installed wheel; in the repository."""
ORDER = (
    "manifests/namespace.yaml",
    "drawbar/crds",
    "manifests/controller-rbac.yaml",
    "manifests/node-rbac.yaml",
)
"""What later files need comes first."""
MODERN = "v1"
CLASSES = {
    MODERN: ("manifests/deviceclasses.yaml",),
    "v1alpha3": ("manifests/classic/controller-classic.yaml", "manifests/classic/deviceclasses.yaml"),
    "v1alpha2": ("manifests/classic/controller-classic.yaml", "manifests/classic/resourceclasses.yaml"),
}
"""What hangs on the version of `resource.k8s.io` that is served."""
POLICIES = "manifests/policies.yaml"
CLASSIC_POLICIES = "manifests/classic/policies.yaml"

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Ten times as fast where PyYAML was built with libyaml. For our own files only: a deeply nested one crashes it."""
_RBAC = {"group": "rbac.authorization.k8s.io", "version": "v1"}
KINDS = {
    kind.kind: kind
    for kind in (
        kinds.NAMESPACE,
        kinds.CUSTOM_RESOURCE,
        kinds.DEVICE_CLASS,
        kinds.RESOURCE_CLASS,
        kinds.Kind(group="", version="v1", kind="ServiceAccount", plural="serviceaccounts"),
        kinds.Kind(**_RBAC, kind="Role", plural="roles", namespaced=True),
        kinds.Kind(**_RBAC, kind="RoleBinding", plural="rolebindings", namespaced=True),
        kinds.Kind(**_RBAC, kind="ClusterRole", plural="clusterroles", namespaced=False),
        kinds.Kind(**_RBAC, kind="ClusterRoleBinding", plural="clusterrolebindings", namespaced=False),
        kinds.ADMISSION_POLICY,
        kinds.ADMISSION_BINDING,
    )
}


async def apply(api: client.Client, *, policies: bool = False, version: str = MODERN) -> None:
    """Creates everything in an empty API server.

    Args:
        api: with all rights.
        policies: the admission policies too, which pin each daemon to its own objects.
        version: of `resource.k8s.io`, as the API server serves it.

    Raises:
        errors.ClusterError: the files are not there, or hold something that is not known here.
        kube.errors.KubeError: the API server refuses one.
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
    """Where the files are.

    Raises:
        errors.ClusterError: nowhere.
    """
    manifests = next((place for place in PLACES if (place / ORDER[0]).is_file()), None)
    if manifests is None:
        raise errors.ClusterError(
            f"the deployment files are neither in {PLACES[0]} nor in {PLACES[1]}: reinstall drawbar"
        )
    return manifests


def documents(deploy: Path, *, policies: bool = False, version: str = MODERN) -> Iterator[dict[str, Any]]:
    """All objects of the files, in an order in which they can be created."""
    pinned = (POLICIES if version == MODERN else CLASSIC_POLICIES,) if policies else ()
    for name in (*ORDER, *CLASSES[version], *pinned):
        path = deploy / name
        for file in [path] if path.is_file() else sorted(path.glob("*.yaml")):
            yield from msgspec.json.decode(_read(file))


@functools.cache
def _read(file: Path) -> bytes:
    """Return the objects of a file as JSON, which is read a hundred times as fast: a test suite makes hundreds of clusters."""
    return msgspec.json.encode(list(yaml.load_all(file.read_text(encoding="utf-8"), Loader=_LOADER)))
