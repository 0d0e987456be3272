"""Object metadata and conditions, common to all kinds.

Source: `k8s.io/apimachinery/pkg/apis/meta/v1`.
"""

import datetime
import re

import msgspec

MESSAGE_CHARS = 1024
"""The longest message of a condition in our CustomResourceDefinitions."""


class Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """The base of all API structs: immutable, camelCase on the wire, absent fields left out.

    A decoded object is a tree without cycles, so it needs no garbage collector (`gc=False`).
    """


class OwnerReference(Struct, frozen=True):
    """An object whose deletion deletes this one."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(Struct, frozen=True):
    """The part of `metadata` that Drawbar reads."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class Condition(Struct, frozen=True):
    """One observation of an object, a `metav1.Condition`."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None

    @property
    def is_true(self) -> bool:
        """Return whether the status is the string True."""
        return self.status == "True"


def find(conditions: tuple[Condition, ...], condition_type: str) -> Condition | None:
    """Return the condition of that type, or None."""
    for condition in conditions:
        if condition.type == condition_type:
            return condition
    return None


def is_true(conditions: tuple[Condition, ...], condition_type: str) -> bool:
    """Return whether the condition exists and its status is True."""
    condition = find(conditions, condition_type)
    return condition is not None and condition.is_true


def transition(
    conditions: tuple[Condition, ...],
    condition_type: str,
    *,
    status: bool,
    reason: str,
    message: str,
    now: str,
) -> Condition:
    """Return the new condition, with the known one's `lastTransitionTime` when the status is the same.

    The message is cut to `MESSAGE_CHARS`.
    """
    old = find(conditions, condition_type)
    text = "True" if status else "False"
    since = old.last_transition_time if old is not None and old.status == text else now
    return Condition(
        type=condition_type,
        status=text,
        reason=reason,
        message=cut(message),
        last_transition_time=since or now,
    )


def cut(message: str) -> str:
    """Return the message as a condition can hold it."""
    return message[:MESSAGE_CHARS]


def timestamp(moment: datetime.datetime) -> str:
    """Return a moment in UTC as `metav1.Time` writes it: RFC 3339 with whole seconds."""
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_TIME = re.compile(
    r"(?P<year>[0-9]{4})(?P<day>-[0-9]{2}-[0-9]{2})[Tt](?P<minute>[0-9]{2}:[0-9]{2}):(?P<second>[0-5][0-9]|60)"
    r"(?:[.,](?P<fraction>[0-9]{1,9}))?(?P<zone>[Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_FIRST = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LAST = datetime.datetime(8999, 12, 31, tzinfo=datetime.UTC)
_LEAP_YEAR = "2000"


def moment(text: str | None) -> datetime.datetime | None:
    """Return the moment that a `metav1.Time` or `MicroTime` names, or None if it names none.

    Anybody may write some of these times, and schemas take days and years that there are not. So the text is RFC 3339
    in full, a leap second is the second before it, and a year that leaves no room to add a span becomes 1970 or 8999.
    """
    match = _TIME.fullmatch(text or "")
    if match is None:
        return None
    is_usual = _FIRST.year <= int(match["year"]) <= _LAST.year
    second, fraction = min(match["second"], "59"), (match["fraction"] or "")[:6].ljust(6, "0")
    day = f"{match['year'] if is_usual else _LEAP_YEAR}{match['day']}"
    try:
        named = datetime.datetime.fromisoformat(
            f"{day}T{match['minute']}:{second}.{fraction}{match['zone'].upper()}"
        )
    except ValueError:
        return None
    if is_usual:
        return named
    return _FIRST if int(match["year"]) < _FIRST.year else _LAST


def camel_case(name: str) -> str:
    """Return a name with dashes as a field of an object has it: `cxlMemory` for `cxl-memory`."""
    first, *others = name.split("-")
    return first + "".join(part.title() for part in others)
