"""Effective settings for people and for programs."""

import json
import re
from collections.abc import Iterator, Sequence

from drawbar.driver.configuration import loader, values

# Words that YAML takes for themselves in every place of a document.
_BARE = re.compile(r"[A-Za-z/][A-Za-z0-9_/.-]*")
_TAKEN = values.TRUE | values.FALSE | values.NONE | {"y", "n"}


def as_yaml(effective: Sequence[loader.Setting]) -> str:
    """A configuration file that says the same, with the source of each value beside it."""
    return "".join(f"{line}\n" for line in _lines(effective))


def as_json(effective: Sequence[loader.Setting]) -> str:
    """An object by key, each with `value` and `source`."""
    content = {
        one.option.key: {"value": values.builtin(one.value), "source": one.source} for one in effective
    }
    return json.dumps(content, indent=1) + "\n"


def _lines(effective: Sequence[loader.Setting]) -> Iterator[str]:
    # Plain settings first, then topic by topic: a topic's lines must stand together.
    open_topics: tuple[str, ...] = ()
    for one in sorted(effective, key=lambda setting: bool(setting.option.topic.path)):
        *topics, name = one.option.key.split(".")
        for depth, topic in enumerate(topics):
            if open_topics[: depth + 1] != tuple(topics[: depth + 1]):
                yield f"{'  ' * depth}{topic}:"
        open_topics = tuple(topics)
        yield f"{'  ' * len(topics)}{name}: {_scalar(values.builtin(one.value))}  # {one.source}"


def _scalar(value: object) -> str:
    if isinstance(value, str) and _BARE.fullmatch(value) and value.lower() not in _TAKEN:
        return value
    if isinstance(value, str):
        return f'"{"".join(map(_escaped, value))}"'
    if isinstance(value, list):
        return f"[{', '.join(map(_scalar, value))}]"
    # What JSON writes of the rest is YAML.
    return json.dumps(value)


def _escaped(character: str) -> str:
    # JSON's own escapes split distant characters in two, which YAML does not know.
    if " " <= character <= "~":
        return f"\\{character}" if character in '"\\' else character
    return f"\\u{ord(character):04x}" if character <= "\uffff" else f"\\U{ord(character):08x}"
