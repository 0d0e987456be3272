"""Writes what follows from the tables of `drawbar.driver.catalogue` and from the classes of device.

docs/reference/ is wholly generated; of the definitions, the chart and the protocol only the lists of classes are.
`make generate` runs this after a change of a table.
"""

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from drawbar.driver.api import meta
from drawbar.driver.catalogue import attachment_conditions, events, fabric_conditions, taints
from drawbar.driver.catalogue.tables import Row, Severity
from drawbar.fabric.classes import OFFERED_CLASSES, DeviceClass

ROOT = Path(__file__).resolve().parent
_NAMES = [str(listed) for listed in OFFERED_CLASSES]
# Memory by capacity and the null device have a DeviceClass and no module.
_CHART_ONLY = ["cxl-memory-pool", "none"]
_HEAD = "<!-- Generated from {source} by `make generate`: change that, not this page. -->\n\n# {title}\n\n{text}\n"


def files() -> dict[str, str]:
    """Return the text of each file that is generated, or has generated lists, by its path."""
    return {
        "docs/reference/conditions.md": _conditions(),
        "docs/reference/events.md": _events(),
        "docs/reference/taints.md": _taints(),
        "docs/reference/device-classes.md": _classes(),
        "deploy/drawbar/crds/deviceattachments.yaml": _definition("deviceattachments.yaml"),
        "deploy/drawbar/crds/fabrics.yaml": _definition("fabrics.yaml"),
        "deploy/drawbar/values.yaml": _values(),
        "deploy/drawbar/values.schema.json": _schema(),
        "proto/drawbar/proto/fabric/v1alpha1/fabric.proto": _protocol(),
    }


def _definition(name: str) -> str:
    text = (ROOT / "deploy/drawbar/crds" / name).read_text()
    text = re.sub(r"enum: \[gpu, .*\]", f"enum: [{', '.join(_NAMES)}]", text)
    ways = [
        (listed, "none, reset, erase" if listed.can_erase else "none, reset") for listed in OFFERED_CLASSES
    ]
    lines = [
        f"{meta.camel_case(listed)}: {{type: string, enum: [{way}], description: {listed.meaning}.}}\n"
        for listed, way in ways
    ]
    pattern = r"^( +)gpu: \{type: string, enum: \[none, reset\].*\n(?:\1\w+: \{type: string, enum: \[none, reset.*\n)+"
    return re.sub(pattern, lambda old: "".join(old[1] + line for line in lines), text, flags=re.MULTILINE)


def _values() -> str:
    text = (ROOT / "deploy/drawbar/values.yaml").read_text()
    offered = [name for name in _NAMES if name != DeviceClass.OTHER]
    return re.sub(
        r"^  classes: \[gpu, .*\]",
        f"  classes: [{', '.join(offered + _CHART_ONLY)}]",
        text,
        flags=re.MULTILINE,
    )


def _schema() -> str:
    schema = json.loads((ROOT / "deploy/drawbar/values.schema.json").read_text())
    classes = schema["properties"]["deviceClasses"]["properties"]
    classes["classes"]["items"]["enum"] = _NAMES + _CHART_ONLY
    resources = classes["extendedResources"]["patternProperties"]
    for pattern in [pattern for pattern in resources if pattern.startswith("^(gpu|")]:
        rule = resources.pop(pattern)
        resources[f"^({'|'.join(_NAMES)})$"] = rule
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _protocol() -> str:
    text = (ROOT / "proto/drawbar/proto/fabric/v1alpha1/fabric.proto").read_text()
    lines = "".join(f"  DEVICE_CLASS_{listed.name} = {listed.number};\n" for listed in OFFERED_CLASSES)
    return re.sub(r"(  DEVICE_CLASS_UNSPECIFIED = 0;\n)(?:  DEVICE_CLASS_\w+ = \d+;\n)+", rf"\1{lines}", text)


def _classes() -> str:
    head = _HEAD.format(
        source="fabric/drawbar/fabric/classes.py",
        title="Classes of device",
        text=(
            "A node tells the class of a device by vendor, device ID and driver where these are known, else by its PCI class code. "
            "The [attribute](../attributes.md) `class` of a device, the field `deviceClass` of parameters and of a DeviceAttachment, "
            "`deviceClasses.classes` of the chart and `localPool.classes` of the node daemon take these names."
        ),
    )
    rows = [
        [
            f"`{listed}`",
            listed.meaning,
            f"`{meta.camel_case(listed)}`",
            "erase, reset or none" if listed.can_erase else "reset or none",
        ]
        for listed in OFFERED_CLASSES
    ]
    return (
        f"{head}\n{_table(['class', 'devices', 'field of `policy.clean`', 'treatment between users'], rows)}"
    )


def _conditions() -> str:
    head = _HEAD.format(
        source="driver/drawbar/driver/catalogue",
        title="Conditions and their reasons",
        text=(
            "The reasons are a closed list. The message beside a reason quotes the fabric manager or the kernel, in at most "
            "1,024 characters. [conditions.md](../conditions.md) explains when each condition is written. The prefix "
            "`drawbar.dev/` is the driver's name."
        ),
    )
    parts = [head]
    for table in (*attachment_conditions.TABLES, *fabric_conditions.TABLES):
        written = (
            f"{table.conditions} is {table.status}, except where the row has another status."
            if table.status
            else table.conditions
        )
        columns = ["reason", "cause", "remedy"]
        rows = [[_reason(row), row.cause, _remedy(row)] for row in table.rows]
        if table in attachment_conditions.FAILURES:
            columns.append("taints the device")
            for cells, row in zip(rows, table.rows, strict=True):
                cells.append("yes" if row.blames_device else "no")
        parts.append(f"\n## {table.title}\n\n{written}\n\n{_table(columns, rows)}")
    return "".join(parts)


def _events() -> str:
    head = _HEAD.format(
        source="driver/drawbar/driver/catalogue/events.py",
        title="Events",
        text=(
            "Run `kubectl events --for KIND/NAME`, or `kubectl describe`. Events of objects without a namespace are in the "
            "namespace `default`. Every reason of a [failed attach](conditions.md#why-an-attach-fails) is a Warning on the claim "
            "and its pods; every reason of [`Released`](conditions.md#why-a-node-does-not-release-a-device) is one on the claim and "
            "its DeviceAttachment."
        ),
    )
    parts = [head]
    for table in events.TABLES:
        rows = [[_type(row), _reason(row), row.cause, _remedy(row)] for row in table.rows]
        parts.append(f"\n## {table.title}\n\n{_table(['type', 'reason', 'cause', 'remedy'], rows)}")
    return "".join(parts)


def _taints() -> str:
    head = _HEAD.format(
        source="driver/drawbar/driver/catalogue/taints.py",
        title="Taints in ResourceSlices",
        text=(
            "The prefix `drawbar.dev/` is the driver's name. Findings of a node are taints as well: "
            "[health.md](../health.md#findings) lists them, with the effect that the node's health policy gives them. They are "
            "lifted when the node finds them no more or has released the device."
        ),
    )
    rows = [
        [
            f"`drawbar.dev/{row.key}{'=' + row.value if row.value else ''}`".replace("{reason}", "<reason>"),
            row.effect,
            row.cause,
            row.lifted,
            _remedy(row),
        ]
        for row in taints.TAINTS
        if row.cause
    ]
    return f"{head}\n{_table(['taint', 'effect', 'cause', 'lifted', 'remedy'], rows)}"


def _type(row: Row) -> str:
    return "Normal" if row.severity in (Severity.OK, Severity.NOTE) else "Warning"


def _reason(row: Row) -> str:
    return f"`{row.reason}`" + (f" ({row.status})" if row.status else "")


def _remedy(row: Row | taints.Taint) -> str:
    link = f"[{row.page.partition('#')[0]}](../{row.page})" if row.page else ""
    return f"{row.remedy} ({link})" if row.remedy and link else row.remedy or link


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(columns)
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n".replace("|  |", "| |") for cells in lines)


def main() -> None:
    """Write the files, or with --check only name those that are not up to date and fail."""
    wanted = {ROOT / path: text for path, text in files().items()}
    stale = {path: text for path, text in wanted.items() if not path.exists() or path.read_text() != text}
    if "--check" in sys.argv[1:]:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        sys.exit(f"error: not up to date: {names}; run make generate" if stale else 0)
    for path, text in stale.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
