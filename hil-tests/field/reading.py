"""Reads a decoded table field by field and collects what is wrong, one sentence each."""

from collections.abc import Iterable, Sequence
from typing import Any

SECONDS_MAX = 3600.0


class Table:
    """A table of a file. A field that is wrong or missing is noted, and a stand-in is given."""

    def __init__(self, content: Any, where: str, problems: list[str]) -> None:
        self._where, self._problems = where, problems
        self._known: set[str] = set()
        self._content: dict[str, Any] = content if isinstance(content, dict) else {}
        if not isinstance(content, dict):
            problems.append(f"{where or 'the file'} must be a table of keys and values")
            self._problems = []  # nothing is missing from what is no table

    def text(self, key: str, default: str | None = None) -> str:
        """Read a text that is not empty."""
        value = self._value(key, default)
        if value is None or value == default:
            return "" if value is None else str(value)
        if not isinstance(value, str) or not value:
            return self._wrong(key, "a text that is not empty", "")
        return value

    def path(self, key: str) -> str:
        """Read an absolute path, without a slash at its end."""
        value = self.text(key)
        if value and not value.startswith("/"):
            return self._wrong(key, "an absolute path", "")
        return value.rstrip("/")

    def one_of(self, key: str, choices: Sequence[str], default: str | None = None) -> str:
        """Read one of a few words."""
        value = self._value(key, default)
        if value is not None and value not in choices:
            return self._wrong(key, f"one of {', '.join(choices)}", "")
        return str(value or "")

    def seconds(self, key: str, default: float) -> float:
        """Read a time, above 0 and at most an hour."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= SECONDS_MAX:
            return self._wrong(key, f"a number of seconds above 0 and at most {SECONDS_MAX:.0f}", default)
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Read true or false."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            return self._wrong(key, "true or false", default)
        return value

    def words(self, key: str) -> tuple[str, ...]:
        """Read a list of texts with at least one."""
        value = self._value(key, None)
        if value is None:
            return ()
        if (
            not isinstance(value, list)
            or not value
            or not all(isinstance(word, str) and word for word in value)
        ):
            return self._wrong(key, "a list of texts, such as [ssh, root@worker-7]", ())
        return tuple(value)

    def texts_by_name(self, key: str) -> dict[str, str]:
        """Read a table of texts; it is empty where the key is missing."""
        value = self._value(key, {})
        if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
            return self._wrong(key, "a table of texts", {})
        return {str(name): text for name, text in value.items()}

    def table(self, key: str) -> "Table":
        """Read a table inside of this one."""
        value = self._value(key, None)
        return Table(
            {} if value is None else value, self._name(key), self._problems if value is not None else []
        )

    def tables(self, key: str) -> "Iterable[Table]":
        """Read a list of tables with at least one."""
        value = self._value(key, None)
        if value is None:
            return []
        if not isinstance(value, list) or not value:
            self._wrong(key, "a list with at least one entry", None)
            return []
        return [
            Table(content, f"{self._name(key)}[{number}]", self._problems)
            for number, content in enumerate(value)
        ]

    def nothing_else(self) -> None:
        """Record a problem for every key that was not read."""
        for key in self._content:
            if key not in self._known:
                keys = ", ".join(sorted(self._known))
                self._problems.append(f"{self._name(str(key))} is not a known key; known are {keys}")

    def _value(self, key: str, default: Any) -> Any:
        self._known.add(key)
        value = self._content.get(key)
        if value is None and default is None:
            self._problems.append(f"{self._name(key)} is missing")
        return default if value is None else value

    def _wrong(self, key: str, wanted: str, stand_in: Any) -> Any:
        self._problems.append(f"{self._name(key)} must be {wanted}")
        return stand_in

    def _name(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key
