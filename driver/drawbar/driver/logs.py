"""Log lines for people and for programs.

Messages are constant and values travel as extras. The text form appends them as key=value, quoted if they hold
spaces. The JSON form has one object on each line: `ts` (UTC), `level`, `logger`, `message`, the extras, and
`exception` if there is one. Foreign text cannot begin a line of its own.
"""

import datetime
import enum
import json
import logging
from dataclasses import dataclass

from drawbar.driver import output


class Format(enum.StrEnum):
    """The form of a record."""

    TEXT = "text"
    JSON = "json"


class Level(enum.StrEnum):
    """The lowest severity that is written."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The log on stderr.

    Attributes:
        format: text for people, json for programs: one object a line.
        level: the least severe records to write.
    """

    format: Format = Format.TEXT
    level: Level = Level.INFO


_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(form: str, level: str = "INFO") -> None:
    """Send all logs and Python's warnings to stderr in that form."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Json() if form == Format.JSON else _Text())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)


def _extras(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _moment(record: logging.LogRecord) -> str:
    return datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds")


def _quote(value: str) -> str:
    plain = value.isprintable() and not set(value) & set(' "=')
    return value if value and plain else json.dumps(value, ensure_ascii=False)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        extras = "".join(f" {key}={_quote(str(value))}" for key, value in _extras(record).items())
        message = " ".join(record.getMessage().splitlines())
        line = f"{_moment(record)} {record.levelname:<7} {record.name.rsplit('.', 1)[-1]}: {message}{extras}"
        if record.exc_info:
            # The text of an exception is foreign, so each of its lines is marked as part of this record.
            line = "\n    ".join((line, *self.formatException(record.exc_info).splitlines()))
        return output.printable(line)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        # Our own fields come first for the reader. They take precedence, so that no extra can replace them.
        own: dict[str, object] = {
            "ts": _moment(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            own["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            own["stack"] = record.stack_info
        return _encode(own | _extras(record) | own)


def _encode(fields: dict[str, object]) -> str:
    try:
        return json.dumps(fields, default=str)
    except (TypeError, ValueError):
        # For a key that is no text, or a value that contains itself, its text is better than no line.
        return json.dumps({str(key): str(value) for key, value in fields.items()})
