"""Kubernetes names of a fabric's objects: devices, pools, slices.

A fabric's ids are free text; Kubernetes' names are not. A valid name is taken as it is, unless it looks like a name
that is made here, with a hash at its end. Any other id is made readable and gets a hash of the whole id. So no id can
have another one's name, unless both have the same hash; `unambiguous` finds these. The names of shares are kept for
shares: a manager's device with such an id is not shown (`fabrics.session`).

Source: `resource.k8s.io/v1` Device.name (DNS label), ResourcePool.name (DNS subdomains joined by `/`).
"""

import functools
import hashlib
import re
import uuid
from collections.abc import Collection, Iterable, Mapping

import msgspec

from drawbar.driver.api import attachments, dnsnames

HASH_CHARS = 8
LABELS_KEPT = 8192
SHARE_PREFIX = "share-"
_SHARE = re.compile(rf"{SHARE_PREFIX}[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}")
_MODEL, _REACH, _REFUSED = "model.", "reach.", "refused."
_OF_RULE = re.compile(rf"[a-z0-9-]+-[0-9a-f]{{{HASH_CHARS}}}")
NODE_LABEL_PREFIX = "fabric.drawbar.dev/"
CLOSED_LABEL_PREFIX = "closed.drawbar.dev/"
REACH_LABEL_PREFIX = "reach.drawbar.dev/"
LABEL_PREFIXES = (NODE_LABEL_PREFIX, CLOSED_LABEL_PREFIX, REACH_LABEL_PREFIX)
# A pool's name has at most 253 characters, with a Fabric, an enclosure and a model of 63 each.
_REACH_CHARS = 16
_REACH_ROOM = _REACH_CHARS + HASH_CHARS + 2


class DeviceKey(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One fabric device.

    Attributes:
        fabric: the name of the Fabric object.
        device: the device's DRA name.
    """

    fabric: str
    device: str

    @property
    def attachment(self) -> str:
        """Return the name of the device's only possible DeviceAttachment."""
        return attachments.name(self.fabric, self.device)


@functools.lru_cache(LABELS_KEPT)
def label(text: str, *, room: int = 0) -> str:
    """Return a DNS label for any id, with `room` characters to spare; equal labels mean equal ids, except for equal hashes."""
    most = dnsnames.LABEL_CHARS - room
    if dnsnames.is_label(text, most) and not is_of_rule(text):
        return text
    readable = _readable(text, most - HASH_CHARS - 1)
    return f"{readable}-{_hash(text)}" if readable else f"x-{_hash(text)}"


def unambiguous(
    ids: Iterable[str], held: Mapping[str, str]
) -> tuple[frozenset[str], tuple[tuple[str, str], ...]]:
    """Return the ids with a name of their own, and each of the others with the id that has its name.

    Args:
        ids: the ids of all listed objects.
        held: by name, its earlier id, which keeps it; of two new ids the first in their order gets it.
    """
    owners: dict[str, str] = {}
    namesakes = []
    for text in sorted(set(ids), key=lambda text: (held.get(label(text)) != text, text)):
        owner = owners.setdefault(label(text), text)
        if owner != text:
            namesakes.append((text, owner))
    return frozenset(owners.values()), tuple(namesakes)


def composite(prefix: str, members: tuple[str, ...]) -> str:
    """Return the name of a rule's composite of these devices; no other devices ever have it."""
    return f"{prefix}-{_hash('/'.join(members))}"


def is_of_rule(name: str) -> bool:
    """Return whether a device may be the composite of a rule, by its name."""
    return _OF_RULE.fullmatch(name) is not None


def share(share_id: str) -> str:
    """Return the device name of a share, which no device of a fabric has."""
    name = f"{SHARE_PREFIX}{share_id}"
    return name if is_share(name) else f"{SHARE_PREFIX}{uuid.uuid5(uuid.NAMESPACE_OID, share_id)}"


def is_share(name: str) -> bool:
    """Return whether the name belongs to a share."""
    return name.startswith(SHARE_PREFIX) and _SHARE.fullmatch(name) is not None


def pool(
    fabric: str, enclosure: str, model: str = "", *, reach: str = "", refusing: Collection[str] = ()
) -> str:
    """Return the name of an enclosure's pool.

    Args:
        fabric: the Fabric's name.
        enclosure: the devices' enclosure; empty if there is only one.
        model: the model of a pool that some nodes may not use; else empty.
        reach: the `reach_key` of a pool that some hosts cannot reach; else empty.
        refusing: the hosts that the manager refused the pool's devices to; else empty.
    """
    # A label has no dot, so no enclosure has such a name.
    parts = (
        label(enclosure) if enclosure else "",
        f"{_REACH}{reach}" if reach else "",
        f"{_MODEL}{label(model)}" if model else "",
        f"{_REFUSED}{refusal_key(refusing)}" if refusing else "",
    )
    return "/".join((fabric, *filter(None, parts)))


def reach_key(groups: Collection[str]) -> str:
    """Return the key of some reachability groups in names; empty without groups."""
    if not groups:
        return ""
    readable = _readable("-".join(sorted(groups)), _REACH_CHARS)
    # The lengths keep any two sets apart.
    hashed = _hash("".join(f"{len(group)}:{group}" for group in sorted(groups)))
    return f"{readable}-{hashed}" if readable else hashed


def refusal_key(hosts: Collection[str]) -> str:
    """Return the key of some hosts, for the name of the pool of devices that they refused."""
    return _hash("".join(f"{len(host)}:{host}" for host in sorted(hosts)))


def reach_label(fabric: str, key: str) -> str:
    """Return the label of nodes that can have the devices with this `reach_key`."""
    # Neither part has a dot, so no other Fabric's labels begin like these.
    return f"{_reach_labels(fabric)}{key}"


def enclosure_of(pool_name: str) -> str:
    """Return the label of the pool's enclosure; empty for a fabric's only, unnamed enclosure."""
    first = "".join(pool_name.split("/")[1:2])
    return "" if first.startswith((_MODEL, _REACH, _REFUSED)) else first


def reach_of(pool_name: str) -> str:
    """Return the `reach_key` of the pool; empty without one."""
    return _part(pool_name, _REACH)


def is_reach_label(text: str, fabric: str) -> bool:
    """Return whether the text is a label of nodes that can have some of the Fabric's devices."""
    return text.startswith(_reach_labels(fabric))


def _reach_labels(fabric: str) -> str:
    return f"{REACH_LABEL_PREFIX}{label(fabric, room=_REACH_ROOM)}."


def _part(pool_name: str, prefix: str) -> str:
    """Return the rest of the part with the prefix in a pool's name; empty without such a part."""
    parts = pool_name.split("/")[1:]
    return next((part.removeprefix(prefix) for part in parts if part.startswith(prefix)), "")


def make_closed_label(fabric: str, model: str) -> str:
    """Return the label of nodes that may have no more of a model."""
    return _make_closed_label(fabric, label(model))


def refusal_label(fabric: str, hosts: Collection[str]) -> str:
    """Return the label of the nodes that get nothing from the pool of devices that their hosts refused."""
    return _make_closed_label(fabric, f"{_REFUSED}{refusal_key(hosts)}")


def refusal_of(pool_name: str) -> str:
    """Return the `refusal_key` of the pool; empty if no host refused its devices."""
    return _part(pool_name, _REFUSED)


def list_closed_labels(pool_name: str) -> tuple[str, ...]:
    """Return the labels of nodes that get nothing from the pool."""
    fabric, model, refusal = fabric_of(pool_name), _part(pool_name, _MODEL), refusal_of(pool_name)
    labels = (
        _make_closed_label(fabric, model) if model else "",
        _make_closed_label(fabric, f"{_REFUSED}{refusal}") if refusal else "",
    )
    return tuple(filter(None, labels))


def _make_closed_label(fabric: str, model: str) -> str:
    readable = _readable(f"{fabric}-{model}", dnsnames.LABEL_CHARS - HASH_CHARS - 1)
    return f"{CLOSED_LABEL_PREFIX}{readable}-{_hash(f'{fabric}/{model}')}"


def fabric_of(pool_name: str) -> str:
    """Return the name of the pool's Fabric."""
    return pool_name.partition("/")[0]


def resource_slice(driver: str, pool_name: str) -> str:
    """Return the only name of the pool's slice, so that no second slice makes the pool invalid."""
    return f"{label(fabric_of(pool_name))}-{_hash(f'{driver}/{pool_name}')}"


def node_label(fabric: str) -> str:
    """Return the label of nodes that a fabric reaches."""
    return f"{NODE_LABEL_PREFIX}{fabric}"


def _readable(text: str, most: int) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:most].rstrip("-")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_CHARS]
