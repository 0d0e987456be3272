"""The files of `deploy/manifests`, rendered from the chart with its default values."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from drawbar.mocks.testing import helm

FILES = (
    "crds.yaml",
    "controller.yaml",
    "node.yaml",
    "networkpolicy.yaml",
    "resourcequota.yaml",
    "controller-rbac.yaml",
    "node-rbac.yaml",
    "operator-rbac.yaml",
    "technician-rbac.yaml",
    "viewer-rbac.yaml",
    "deviceclasses.yaml",
    "policies.yaml",
)
HEADER = "# Made from the chart by deploy/render: change deploy/drawbar and run that.\n"
_ANYWHERE = [{"ipBlock": {"cidr": "0.0.0.0/0"}}, {"ipBlock": {"cidr": "::/0"}}]
COMPONENTS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "health-monitor": (
        ("health-monitor-rbac.yaml", "health-monitor.yaml"),
        {
            "healthMonitor": {
                "enabled": True,
                "tlsSecretName": "drawbar-health-monitor-tls",
                "tokenSecretName": "drawbar-health-monitor-token",
            },
            "networkPolicy": {"healthMonitorFrom": _ANYWHERE},
        },
    ),
    "ui": (("ui.yaml",), {"ui": {"enabled": True}}),
    "webhook": (
        ("webhook.yaml", "webhook-configuration.yaml"),
        {"webhook": {"enabled": True}, "networkPolicy": {"webhookFrom": _ANYWHERE}},
    ),
}
"""The files and values of the parts that the chart's default values do not enable; each is a component of kustomize."""
KUBE_VERSION = "1.36.0"
CLASSIC_FILES = {
    "1.31.0": ("controller-classic.yaml", "deviceclasses.yaml", "policies.yaml"),
    "1.30.0": ("resourceclasses.yaml",),
}
"""The files for clusters with classic allocation, by Kubernetes version; they have a folder of their own."""
IMAGE = "registry.example.com/drawbar"
"""The image of the daemons, which a kustomization replaces."""
_VALUES = {"image": {"repository": IMAGE}, "crds": {"keep": False}}
_SOURCE = re.compile(r"^# Source: drawbar/templates/(\S+)\n", re.MULTILINE)
# Labels of objects that Helm manages, and a `labels:` key without entries. Helm does not manage these files.
_MANAGED = re.compile(
    r"^(?:    app\.kubernetes\.io/| +(?:helm\.sh/chart|app\.kubernetes\.io/managed-by): ).*\n|^    helm\.sh/.*\n",
    re.MULTILINE,
)
_EMPTY = re.compile(r"^  labels:\n(?!    )", re.MULTILINE)


async def render_manifests(engine: helm.Helm, chart: Path) -> dict[str, str]:
    """Render the files; return each one's content by its name, including its folder.

    Raises:
        helm.HelmError: the chart cannot be rendered.
    """
    files = await _render_files(engine, chart, FILES, {}, KUBE_VERSION)
    for component, (names, values) in COMPONENTS.items():
        made = await _render_files(engine, chart, names, values, KUBE_VERSION)
        files |= {f"components/{component}/{name}": text for name, text in made.items()}
    for version, names in CLASSIC_FILES.items():
        classic = await _render_files(engine, chart, names, {"classic": {"enabled": True}}, version)
        files |= {f"classic/{name}": text for name, text in classic.items()}
    return files


async def _render_files(
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
