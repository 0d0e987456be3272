"""The fields of one JSON object, taken one by one with their types.

Whoever has taken all that he knows calls `end`: what is left is refused by name.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from drawbar.cdi import errors

T = TypeVar("T")
_REQUIRED: Any = object()


class Fields:
    """One object and its place in the document, such as `the CDI file.devices[0]`."""

    def __init__(self, value: object, place: str) -> None:
        if not isinstance(value, dict):
            raise errors.InvalidSpec(f"{place} is {_kind(value)}, not an object")
        self._left: dict[str, Any] = dict(value)
        self._place = place

    def text(self, key: str, default: str = _REQUIRED) -> str:
        """A string; the default where there is none."""
        return self._take(key, _is_text, "a string", default)

    def number(self, key: str) -> int | None:
        """A whole number; None where there is none."""
        return self._take(key, _is_number, "a whole number", None)

    def flag(self, key: str) -> bool:
        """A boolean; False where there is none."""
        return self._take(key, _is_flag, "true or false", default=False)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty where there is none."""
        return tuple(self._take(key, _all(_is_text), "a list of strings", ()))

    def numbers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers; empty where there is none."""
        return tuple(self._take(key, _all(_is_number), "a list of whole numbers", ()))

    def mapping(self, key: str) -> Mapping[str, str]:
        """Strings by name; empty where there is none."""
        return dict(self._take(key, _is_mapping, "strings by name", {}))

    def nested(self, key: str) -> "Fields | None":
        """An object within; None where there is none."""
        held = self._left.pop(key, None)
        return None if held is None else Fields(held, f"{self._place}.{key}")

    def nested_all(self, key: str) -> "tuple[Fields, ...]":
        """A list of objects; empty where there is none."""
        held: list[Any] = self._take(key, _is_list, "a list", [])
        return tuple(Fields(entry, f"{self._place}.{key}[{number}]") for number, entry in enumerate(held))

    def end(self) -> None:
        """Refuses what nobody took.

        Raises:
            errors.InvalidSpec: a field is left.
        """
        if self._left:
            names = ", ".join(sorted(map(repr, self._left)))
            raise errors.InvalidSpec(f"{self._place} has {names}, which no known version of CDI has")

    def _take(self, key: str, fits: Callable[[object], bool], what: str, default: T) -> T:
        value = self._left.pop(key, None)
        if value is None:
            if default is _REQUIRED:
                raise errors.InvalidSpec(f"{self._place} has no {key!r}")
            return default
        if not fits(value):
            raise errors.InvalidSpec(f"{self._place}.{key} is {_kind(value)}, not {what}")
        taken: T = value
        return taken


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _is_mapping(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(held, str) for held in (*value, *value.values()))


def _all(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _kind(value: object) -> str:
    """What a value is, in the words of JSON."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
