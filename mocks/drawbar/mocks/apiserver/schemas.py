"""The merge structure of values, shared by apply, strategic merge and ownership.

A ``Schema`` describes each place of an object. It is a map with keys owned one by one, a list of items with keys, a
set, or one atomic value. Built-in types declare only differences from the deduced structure (maps are granular, lists
atomic); custom resources derive theirs from the CRD.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

Json = dict[str, Any]
_NOTHING: Mapping[str, Schema] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The merge structure of one place.

    Attributes:
        kind: ``map`` (granular), ``list-map``, ``set`` or ``atomic``.
        fields: declared keys of a map.
        other: structure of undeclared keys of a map; None deduces it from the value.
        closed: undeclared keys are an error in an applied object.
        keys: the key fields of a list-map, in the order in which ownership records them.
        item: structure of a list-map's items.
        merge_key: the key of strategic merge; empty means that strategic merge replaces the list.
    """

    kind: Literal["map", "list-map", "set", "atomic"] = "map"
    fields: Mapping[str, Schema] = field(default_factory=lambda: _NOTHING)
    other: Schema | None = None
    closed: bool = False
    keys: tuple[str, ...] = ()
    item: Schema | None = None
    merge_key: str = ""

    def child(self, key: str, value: Any) -> Schema:
        """Return the structure below a map's key."""
        declared = self.fields.get(key) or self.other
        return declared if declared is not None else deduce_schema(value)


ATOMIC = Schema(kind="atomic")
OPEN = Schema()


def deduce_schema(value: Any) -> Schema:
    """Return the structure of a value without a declaration: maps are granular, everything else is atomic."""
    return OPEN if isinstance(value, dict) else ATOMIC


def record(**fields: Schema) -> Schema:
    """Return a map with some declared keys; the others are deduced."""
    return Schema(fields=MappingProxyType(fields))


def keyed_list(*keys: str, item: Schema = OPEN, strategic: str | None = None) -> Schema:
    """Return a list-map; strategic merge uses its first key, or ``strategic`` ("" replaces the list)."""
    return Schema(
        kind="list-map", keys=keys, item=item, merge_key=keys[0] if strategic is None else strategic
    )


SET = Schema(kind="set", merge_key="value")
CONDITIONS = keyed_list("type")
METADATA = record(finalizers=SET, ownerReferences=keyed_list("uid"))

_CONTAINERS = keyed_list(
    "name",
    item=record(
        env=keyed_list("name"),
        ports=keyed_list("containerPort", "protocol"),
        volumeMounts=keyed_list("mountPath"),
        volumeDevices=keyed_list("devicePath"),
        resources=record(claims=keyed_list("name", strategic="")),
    ),
)
_POD_SPEC = record(
    containers=_CONTAINERS,
    initContainers=_CONTAINERS,
    ephemeralContainers=_CONTAINERS,
    volumes=keyed_list("name"),
    imagePullSecrets=keyed_list("name"),
    resourceClaims=keyed_list("name"),
    hostAliases=keyed_list("ip"),
    schedulingGates=keyed_list("name"),
    nodeSelector=ATOMIC,
)
POD = record(
    metadata=METADATA,
    spec=_POD_SPEC,
    status=record(conditions=CONDITIONS, podIPs=keyed_list("ip"), resourceClaimStatuses=keyed_list("name")),
)
NODE = record(
    metadata=METADATA,
    spec=record(podCIDRs=SET),
    status=record(conditions=CONDITIONS, addresses=keyed_list("type"), images=ATOMIC),
)
CLAIM = record(
    metadata=METADATA,
    spec=ATOMIC,
    status=record(
        allocation=ATOMIC,
        reservedFor=keyed_list("uid"),
        # Strategic merge replaces this list, because the type has no patch key.
        devices=keyed_list(
            "driver",
            "device",
            "pool",
            "shareID",
            item=record(conditions=CONDITIONS, data=ATOMIC, networkData=record(ips=ATOMIC)),
            strategic="",
        ),
    ),
)
SLICE = record(metadata=METADATA, spec=record(pool=OPEN, nodeSelector=ATOMIC, devices=ATOMIC))
WITH_CONDITIONS = record(metadata=METADATA, status=record(conditions=CONDITIONS))
PLAIN = record(metadata=METADATA)


def from_structural(schema: Json) -> Schema:
    """Return the merge structure of a CRD's ``openAPIV3Schema`` (already checked to be structural)."""
    top = _structural(schema)
    fields = dict(top.fields) | {
        "metadata": METADATA,
        "apiVersion": ATOMIC,
        "kind": ATOMIC,
    }
    return Schema(fields=MappingProxyType(fields), other=top.other, closed=top.closed)


def _structural(schema: Json) -> Schema:
    if schema.get("x-kubernetes-map-type") == "atomic":
        return ATOMIC
    preserve = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    if schema.get("type") == "array":
        return _structural_list(schema)
    if schema.get("type") == "object" or "properties" in schema:
        additional = schema.get("additionalProperties")
        fields = {key: _structural(value) for key, value in (schema.get("properties") or {}).items()}
        other = _structural(additional) if isinstance(additional, dict) else None
        closed = not preserve and additional in (None, False)
        return Schema(fields=MappingProxyType(fields), other=other, closed=closed)
    return OPEN if preserve and not schema.get("type") else ATOMIC


def _structural_list(schema: Json) -> Schema:
    match schema.get("x-kubernetes-list-type"):
        case "map":
            keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
            return Schema(kind="list-map", keys=keys, item=_structural(schema.get("items") or {}))
        case "set":
            return Schema(kind="set")
        case _:
            return ATOMIC
