"""Attachments by the fabric and by the node they are on, kept current from the watch of all attachments.

What is asked for every device, or for every change, must not walk through all attachments of a cluster. Bounded by
the number of attachments; a name counts once, whatever its uid.
"""

from collections import Counter
from collections.abc import Iterator

from drawbar.driver.api import attachments

_ByName = dict[str, attachments.DeviceAttachment]


class Index:
    """Attachments by fabric and by node."""

    def __init__(self) -> None:
        self._by_fabric: dict[str, _ByName] = {}
        self._by_node: dict[str, _ByName] = {}
        self._attached: Counter[str] = Counter()

    def change(
        self, old: attachments.DeviceAttachment | None, new: attachments.DeviceAttachment | None
    ) -> None:
        """Takes over a change of one attachment."""
        if old is not None:
            self._attached[old.spec.fabric] -= old.holds(attachments.ATTACHED)
            _remove(self._by_fabric, old.spec.fabric, old.metadata.name)
            _remove(self._by_node, old.spec.node_name, old.metadata.name)
        if new is not None:
            self._attached[new.spec.fabric] += new.holds(attachments.ATTACHED)
            self._by_fabric.setdefault(new.spec.fabric, {})[new.metadata.name] = new
            self._by_node.setdefault(new.spec.node_name, {})[new.metadata.name] = new

    def of(self, fabric: str) -> Iterator[attachments.DeviceAttachment]:
        """All attachments of a fabric."""
        return iter(tuple(self._by_fabric.get(fabric, {}).values()))

    def has(self, fabric: str) -> bool:
        """Whether there is any attachment of the fabric."""
        return fabric in self._by_fabric

    def attached(self, fabric: str) -> int:
        """How many attachments of the fabric are attached."""
        return self._attached[fabric]

    def on(self, node: str) -> Iterator[attachments.DeviceAttachment]:
        """All attachments of a node."""
        return iter(tuple(self._by_node.get(node, {}).values()))


def _remove(known: dict[str, _ByName], key: str, name: str) -> None:
    found = known.get(key, {})
    found.pop(name, None)
    if not found:
        known.pop(key, None)
