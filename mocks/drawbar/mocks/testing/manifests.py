"""The files of `deploy/manifests`, as the chart renders them with its own values."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from drawbar.mocks.testing import helm

FILES = (
    "controller-rbac.yaml",
    "node-rbac.yaml",
    "operator-rbac.yaml",
    "technician-rbac.yaml",
    "viewer-rbac.yaml",
    "deviceclasses.yaml",
    "policies.yaml",
)
HEADER = "# Made from the chart by deploy/render: change deploy/drawbar and run that.\n"
MONITOR_FILE = "health-monitor-rbac.yaml"
"""Of what is not enabled by the chart's own values."""
MONITOR_VALUES = {
    "healthMonitor": {"enabled": True, "tlsSecretName": "tls", "tokenSecretName": "token"},
    "networkPolicy": {"enabled": False},
}
KUBE_VERSION = "1.36.0"
CLASSIC_FILES = {
    "1.31.0": ("controller-classic.yaml", "deviceclasses.yaml", "policies.yaml"),
    "1.30.0": ("resourceclasses.yaml",),
}
"""What is other in clusters with classic allocation, in a folder of its own; by the Kubernetes that it is rendered for."""
# No part of the deployed objects depends on it, but a chart without an image is refused.
_VALUES = {"image": {"repository": "registry.example.com/drawbar"}}
_SOURCE = re.compile(r"^# Source: drawbar/templates/(\S+)\n", re.MULTILINE)
# The labels of an object that Helm manages, which is not so here; and what is left where it has no other.
_MANAGED = re.compile(r"^    (?:app\.kubernetes\.io|helm\.sh)/.*\n", re.MULTILINE)
_EMPTY = re.compile(r"^  labels:\n(?!    )", re.MULTILINE)


async def rendered(engine: helm.Helm, chart: Path) -> dict[str, str]:
    """By name of the file, with its folder, its content.

    Raises:
        helm.HelmError: the chart cannot be rendered.
    """
    files = await _rendered(engine, chart, FILES, {}, KUBE_VERSION)
    files |= await _rendered(engine, chart, (MONITOR_FILE,), MONITOR_VALUES, KUBE_VERSION)
    for version, names in CLASSIC_FILES.items():
        classic = await _rendered(engine, chart, names, {"classic": {"enabled": True}}, version)
        files |= {f"classic/{name}": text for name, text in classic.items()}
    return files


async def _rendered(
    engine: helm.Helm, chart: Path, names: Collection[str], values: dict[str, Any], kube_version: str
) -> dict[str, str]:
    parts: dict[str, list[str]] = {name: [] for name in names}
    text = await engine.template(chart, _VALUES | values, kube_version=kube_version)
    for document in text.removeprefix("---\n").split("\n---\n"):
        source = _SOURCE.search(document)
        if source is not None and source[1] in parts:
            plain = _EMPTY.sub("", _MANAGED.sub("", _SOURCE.sub("", f"{document}\n")))
            parts[source[1]].append(plain.strip() + "\n")
    return {name: HEADER + "---\n".join(documents) for name, documents in parts.items()}
