"""The files of `deploy/manifests`, as the chart renders them with its own values."""

import re
from pathlib import Path

from drawbar.mocks.testing import helm

FILES = ("controller-rbac.yaml", "node-rbac.yaml", "deviceclasses.yaml", "policies.yaml")
HEADER = "# Made from the chart by deploy/render: change deploy/drawbar and run that.\n"
# No part of the deployed objects depends on it, but a chart without an image is refused.
_VALUES = {"image": {"repository": "registry.example.com/drawbar"}}
_SOURCE = re.compile(r"^# Source: drawbar/templates/(\S+)\n", re.MULTILINE)
# What says that Helm looks after an object, which is not so here.
_LABELS = re.compile(r"^  labels:\n(?:    (?:app\.kubernetes\.io|helm\.sh)/.*\n)+", re.MULTILINE)


async def rendered(engine: helm.Helm, chart: Path) -> dict[str, str]:
    """By name of the file its content.

    Raises:
        helm.HelmError: the chart cannot be rendered.
    """
    found: dict[str, list[str]] = {name: [] for name in FILES}
    text = await engine.template(chart, _VALUES)
    for document in text.removeprefix("---\n").split("\n---\n"):
        source = _SOURCE.search(document)
        if source is not None and source[1] in found:
            plain = _LABELS.sub("", _SOURCE.sub("", f"{document}\n"))
            found[source[1]].append(plain.strip() + "\n")
    return {name: HEADER + "---\n".join(documents) for name, documents in found.items()}
