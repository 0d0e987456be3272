"""Object metadata, common to all kinds.

Source: `k8s.io/apimachinery/pkg/apis/meta/v1`.
"""

import datetime

import msgspec

_FIRST = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LAST = datetime.datetime(8999, 1, 1, tzinfo=datetime.UTC)


class Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The base of the doubles' objects: immutable, camelCase on the wire, absent fields left out."""


class OwnerReference(Struct, frozen=True):
    """An object whose deletion deletes this one."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Struct, frozen=True):
    """All metadata that an update must send back unchanged."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    managed_fields: tuple[dict[str, object], ...] = ()


class Condition(Struct, frozen=True):
    """A `metav1.Condition`."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


def is_true(conditions: tuple[Condition, ...], condition_type: str) -> bool:
    """Return true if the condition exists and its status is True."""
    return any(each.type == condition_type and each.status == "True" for each in conditions)


def timestamp(moment: datetime.datetime) -> str:
    """Return the moment as a `metav1.Time`: UTC, whole seconds."""
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str | None) -> datetime.datetime | None:
    """Return the moment that a `metav1.Time` or `MicroTime` names, or None if it names none.

    Anybody may write some of these times, so a year that leaves no room to add a span becomes 1970 or 8999.
    """
    try:
        named = datetime.datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return min(max(named, _FIRST), _LAST) if named.tzinfo is not None else None
