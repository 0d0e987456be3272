"""Log lines for people and for programs.

Messages are constant and values travel as extras; the text form appends them as key=value (quoted where they hold
spaces), the JSON form gives one object a line. Foreign text cannot begin a line of its own.
"""

import datetime
import json
import logging

FORMATS = ("text", "json")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(form: str, level: str = "INFO") -> None:
    """Sends everything to stderr in that form."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Json() if form == "json" else _Text())
    logging.basicConfig(level=level, handlers=[handler], force=True)


def _extras(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _moment(record: logging.LogRecord) -> str:
    return datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds")


def _quoted(value: str) -> str:
    plain = value.isprintable() and not set(value) & set(' "=')
    return value if value and plain else json.dumps(value, ensure_ascii=False)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        extras = "".join(f" {key}={_quoted(str(value))}" for key, value in _extras(record).items())
        message = " ".join(record.getMessage().splitlines())
        line = f"{_moment(record)} {record.levelname:<7} {record.name.rsplit('.', 1)[-1]}: {message}{extras}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        # Ours come last, so that no extra can pose as one of them.
        fields = _extras(record) | {
            "time": _moment(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)
