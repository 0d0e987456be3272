"""Kubernetes names of what a fabric has: devices, pools, slices.

A fabric's ids are free text; Kubernetes' names are not. An id that is a name already is taken as it is, unless it looks like
a name that is made here, with a hash at its end. Any other is made readable and gets a hash of the whole id. So no id can be
chosen that has another one's name, unless two have the same hash; `unambiguous` finds these. The names of shares are kept
for shares: a device of the manager with such an id is not shown (`fabrics.session`).

Source: `resource.k8s.io/v1` Device.name (DNS label), ResourcePool.name (DNS subdomains joined by `/`).
"""

import hashlib
import re
import uuid
from collections.abc import Iterable, Mapping

import msgspec

from drawbar.driver.api import attachments

LABEL_CHARS = 63
HASH_CHARS = 8
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
SHARE_PREFIX = "share-"
_SHARE = re.compile(rf"{SHARE_PREFIX}[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}")
_OF_RULE = re.compile(rf"[a-z0-9-]+-[0-9a-f]{{{HASH_CHARS}}}")
NODE_LABEL_PREFIX = "fabric.drawbar.dev/"
CLOSED_LABEL_PREFIX = "closed.drawbar.dev/"


class DeviceKey(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One fabric device.

    Attributes:
        fabric: name of the Fabric object.
        device: the device's DRA name.
    """

    fabric: str
    device: str

    @property
    def attachment(self) -> str:
        """The name of the one DeviceAttachment this device can have."""
        return attachments.name(self.fabric, self.device)


def label(text: str, *, room: int = 0) -> str:
    """Return a DNS label for any id, with room for so many more characters; equal only for equal ids, but for their hash."""
    most = LABEL_CHARS - room
    if len(text) <= most and _LABEL.fullmatch(text) and not is_of_rule(text):
        return text
    readable = _readable(text, most - HASH_CHARS - 1)
    return f"{readable}-{_hash(text)}" if readable else f"x-{_hash(text)}"


def unambiguous(
    ids: Iterable[str], held: Mapping[str, str]
) -> tuple[frozenset[str], tuple[tuple[str, str], ...]]:
    """Return the ids that have their name for themselves, and each of the others with the one whose name it has.

    Args:
        ids: of everything that is listed.
        held: by name the id that had it before, which keeps it; of two new ones the first in their order has it.
    """
    owners: dict[str, str] = {}
    namesakes = []
    for text in sorted(set(ids), key=lambda text: (held.get(label(text)) != text, text)):
        owner = owners.setdefault(label(text), text)
        if owner != text:
            namesakes.append((text, owner))
    return frozenset(owners.values()), tuple(namesakes)


def composite(prefix: str, members: tuple[str, ...]) -> str:
    """Return the name of the composite that a rule makes of these devices; no other devices ever have it."""
    return f"{prefix}-{_hash('/'.join(members))}"


def is_of_rule(name: str) -> bool:
    """Return whether a device may be the composite of a rule, by its name."""
    return _OF_RULE.fullmatch(name) is not None


def share(share_id: str) -> str:
    """Return the device name of a share; a name that no device of a fabric has."""
    name = f"{SHARE_PREFIX}{share_id}"
    return name if is_share(name) else f"{SHARE_PREFIX}{uuid.uuid5(uuid.NAMESPACE_OID, share_id)}"


def is_share(name: str) -> bool:
    """Return whether a device name is that of a share."""
    return name.startswith(SHARE_PREFIX) and _SHARE.fullmatch(name) is not None


def pool(fabric: str, enclosure: str, model: str = "") -> str:
    """Return the pool of an enclosure; one of its own for a model that not every node may have."""
    # A label has no dot, so no enclosure has such a name.
    return "/".join(
        [fabric, *([label(enclosure)] if enclosure else []), *([f"model.{label(model)}"] if model else [])]
    )


def closed_label(fabric: str, model: str) -> str:
    """Return the label of nodes that may have no more of a model."""
    return _closed(fabric, label(model))


def closed_label_of(pool_name: str) -> str | None:
    """Return the label of nodes that get nothing from that pool; None where there is none."""
    fabric, *rest = pool_name.split("/")
    models = [part.removeprefix("model.") for part in rest if part.startswith("model.")]
    return _closed(fabric, models[0]) if models else None


def _closed(fabric: str, model: str) -> str:
    readable = _readable(f"{fabric}-{model}", LABEL_CHARS - HASH_CHARS - 1)
    return f"{CLOSED_LABEL_PREFIX}{readable}-{_hash(f'{fabric}/{model}')}"


def fabric_of(pool_name: str) -> str:
    """Return the name of the Fabric that a pool of ours belongs to."""
    return pool_name.partition("/")[0]


def resource_slice(driver: str, pool_name: str) -> str:
    """Return the one name a pool's slice can have, so that no second one makes the pool invalid."""
    return f"{label(fabric_of(pool_name))}-{_hash(f'{driver}/{pool_name}')}"


def node_label(fabric: str) -> str:
    """Return the label of nodes that a fabric reaches."""
    return f"{NODE_LABEL_PREFIX}{fabric}"


def _readable(text: str, most: int) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:most].rstrip("-")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_CHARS]
