"""The tree for programs; pure. Each device has the category and the problems that the tables show."""

import datetime
from typing import Any

import msgspec

from drawbar.driver.cli.status import categories, faults, tree


def describe(shown: tree.Tree, now: datetime.datetime) -> dict[str, Any]:
    """Return the fields of the document at a time."""
    content: dict[str, Any] = msgspec.to_builtins(shown)
    branches = [
        *(enclosure for fabric in content["fabrics"] for enclosure in fabric["enclosures"]),
        *content["local"],
    ]
    entries = (entry for branch in branches for entry in branch["devices"])
    for device, entry in zip(shown.devices, entries, strict=True):
        entry["category"] = categories.judge(device)
        entry["problems"] = msgspec.to_builtins(tuple(faults.list_problems(device, now)))
    return content
