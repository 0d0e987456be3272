"""The API server's times: UTC, with whole seconds or exactly six digits of a second.

Kubernetes has two types. ``Time`` drops fractions of a second. ``MicroTime`` (Leases, the new Events) requires six
digits after the point and refuses everything else, which clients in other languages often get wrong.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

_FORM = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)$")
_SECONDS = "2006-01-02T15:04:05Z07:00"
_MICRO = "2006-01-02T15:04:05.000000Z07:00"


def seconds(text: str) -> str:
    """Return a time in UTC and whole seconds.

    Raises:
        ValueError: the text is no RFC 3339 time.
    """
    whole, _, zone = _parts(text, _SECONDS)
    return _utc(whole, zone, text, _SECONDS)[:-1] + "Z"


def micro(text: str) -> str:
    """Return a time in UTC with six digits of a second.

    Raises:
        ValueError: the text is no RFC 3339 time with exactly six such digits.
    """
    whole, fraction, zone = _parts(text, _MICRO)
    if len(fraction) != 7:
        rest = (fraction or "") + zone
        raise ValueError(f'parsing time "{text}" as "{_MICRO}": cannot parse "{rest}" as ".000000"')
    return _utc(whole, zone, text, _MICRO)[:-1] + fraction + "Z"


def _parts(text: str, layout: str) -> tuple[str, str, str]:
    match = _FORM.match(text)
    if match is None:
        raise ValueError(f'parsing time "{text[:64]}" as "{layout}": cannot parse "{text[:64]}" as "2006"')
    return match.group(1), match.group(2) or "", match.group(3)


def _utc(whole: str, zone: str, text: str, layout: str) -> str:
    try:
        moment = datetime.fromisoformat(whole + ("+00:00" if zone == "Z" else zone)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f'parsing time "{text}" as "{layout}": {error}') from error
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
