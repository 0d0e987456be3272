"""Signals: reports on devices from alerts, Redfish events or a command's output; pure.

The senders are authenticated, but every payload is bounded: at most `SIGNALS_MAX` signals, each with
`LABELS_MAX` labels of `NAME_CHARS_MAX` and `VALUE_CHARS_MAX` characters. The rest is left out and counted.

Sources: Alertmanager, "webhook_config"; DMTF DSP0266 "Eventing" and the schema Event.v1; for a command, docs/health-monitor.md.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from drawbar.driver.api.healthpolicies import Source
from drawbar.driver.kube import decoding

SIGNALS_MAX = 500
LABELS_MAX = 64
NAME_CHARS_MAX = 128
VALUE_CHARS_MAX = 1024
# Of Event (`MessageSeverity`), by the word in lower case.
_SEVERITIES = {severity.casefold(): severity for severity in ("OK", "Warning", "Critical")}


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """One statement about a device.

    Attributes:
        fingerprint: common to statements about the same cause.
        firing: whether there is a fault, or no longer.
    """

    source: Source
    labels: Mapping[str, str]
    fingerprint: str
    firing: bool


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The content of one payload.

    Attributes:
        complete: whether all absent signals of the source are clear.
        left_out: signals beyond the bounds.
    """

    source: Source
    signals: tuple[Signal, ...] = ()
    complete: bool = False
    left_out: int = msgspec.field(default=0)


class Unreadable(Exception):
    """A payload has another form than its source's."""


class _Alert(msgspec.Struct, rename="camel"):
    status: str
    labels: dict[str, str]
    fingerprint: str = ""


class _Webhook(msgspec.Struct):
    alerts: list[msgspec.Raw]


class _Event(msgspec.Struct, rename="pascal"):
    """One event, read property by property: services send null, text and lists where the schema has something else."""

    message_id: Any = None
    message_severity: Any = None
    severity: Any = None
    event_type: Any = None
    origin_of_condition: Any = None


class _Events(msgspec.Struct, rename="pascal"):
    events: list[msgspec.Raw]


class _Item(msgspec.Struct):
    labels: dict[str, str]


class _Output(msgspec.Struct):
    signals: list[msgspec.Raw]


def read(source: Source, body: bytes) -> Batch:
    """Return the contents of a payload.

    Raises:
        Unreadable: it is of another form.
    """
    try:
        match source:
            case Source.ALERT:
                entries = decoding.decode(body, _Webhook).alerts
            case Source.REDFISH:
                entries = decoding.decode(body, _Events).events
            case Source.COMMAND:
                entries = decoding.decode(body, _Output).signals
    except decoding.Malformed as error:
        raise Unreadable(f"this is not a payload of the source {source}: {str(error)[:200]}") from error
    listed = [_parse(source, raw) for raw in entries[:SIGNALS_MAX]]
    signals = tuple(signal for signal in listed if signal is not None)
    left_out = len(entries) - len(signals)
    # An alert that is left out may still fire.
    return Batch(
        source=source,
        signals=signals,
        complete=source is Source.COMMAND and not left_out,
        left_out=left_out,
    )


def _parse(source: Source, raw: msgspec.Raw) -> Signal | None:
    """Return a signal, or None for another form, or if it is beyond the bounds."""
    try:
        match source:
            case Source.ALERT:
                return _alert(decoding.decode(raw, _Alert))
            case Source.REDFISH:
                return _event(decoding.decode(raw, _Event))
            case Source.COMMAND:
                labels = decoding.decode(raw, _Item).labels
                return _signal(source, labels, _digest(labels), firing=True)
    except (decoding.Malformed, ValueError):
        return None


def _alert(alert: _Alert) -> Signal | None:
    if alert.status not in ("firing", "resolved"):
        return None
    # Alertmanager's own where it gives one; both follow from the labels.
    fingerprint = alert.fingerprint or _digest(alert.labels)
    return _signal(Source.ALERT, alert.labels, fingerprint, firing=alert.status == "firing")


def _event(event: _Event) -> Signal | None:
    link = event.origin_of_condition
    origin = _text(link.get("@odata.id") if isinstance(link, dict) else link)
    severity = next(
        (
            standard
            for text in (event.message_severity, event.severity)
            if (standard := _SEVERITIES.get(_text(text).casefold()))
        ),
        None,
    )
    if not origin or severity is None:
        return None
    message_id = _text(event.message_id)
    registry, _, key = message_id.rpartition(".")
    labels = {
        "origin": origin,
        "originID": origin.rstrip("/").rpartition("/")[2],
        "severity": severity,
        "messageID": message_id,
        "registry": registry.partition(".")[0],
        "message": key,
        "eventType": _text(event.event_type),
    }
    # A service reports that a resource is well by another message than that it was not: both are about the origin.
    return _signal(Source.REDFISH, labels, origin, firing=severity != "OK")


def _text(content: object) -> str:
    """Return a text, the first one of a list, or an empty one."""
    if isinstance(content, list) and content:
        content = content[0]
    return content.strip() if isinstance(content, str) else ""


def _signal(source: Source, labels: Mapping[str, str], fingerprint: str, *, firing: bool) -> Signal | None:
    within = len(labels) <= LABELS_MAX and all(
        len(name) <= NAME_CHARS_MAX and len(value) <= VALUE_CHARS_MAX for name, value in labels.items()
    )
    if not within or len(fingerprint) > VALUE_CHARS_MAX:
        return None
    return Signal(source=source, labels=labels, fingerprint=fingerprint, firing=firing)


def _digest(labels: Mapping[str, str]) -> str:
    return hashlib.sha256(msgspec.json.encode(sorted(labels.items()))).hexdigest()[:32]
