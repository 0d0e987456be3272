"""The configuration file: YAML, and so JSON, read with the line of every value.

The file is a mapping of keys as `schema` has them. What is unknown, doubled or of another type is a problem that
names file, line and key; nothing is taken from a file with problems.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drawbar.driver.configuration import schema, values

LIMIT_BYTES = 1024 * 1024
_NULL = "tag:yaml.org,2002:null"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A value of the file and the line it stands on."""

    value: Any
    line: int


@dataclass(slots=True)
class _Reading:
    path: Path
    options: Mapping[str, schema.Option]
    found: dict[str, Found] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def complain(self, node: Any, sentence: str) -> None:
        self.problems.append(f"{self.path}:{node.start_mark.line + 1}: {sentence}")


def read(path: Path, options: Sequence[schema.Option]) -> tuple[dict[str, Found], list[str]]:
    """The file's values by key, and what is wrong with it."""
    # Imported here: a daemon that is told everything by flags and environment need not pay for it.
    import yaml

    try:
        with path.open("rb") as file:
            text = file.read(LIMIT_BYTES + 1)
    except OSError as error:
        return {}, [f"cannot read the configuration file {path}: {error.strerror}; check --config"]
    if len(text) > LIMIT_BYTES:
        return {}, [f"the configuration file {path} has more than {LIMIT_BYTES} bytes; check --config"]
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        return {}, [_unreadable(path, error)]
    except (UnicodeDecodeError, RecursionError):
        return {}, [f"{path}: this is no YAML; write `key: value` lines"]
    reading = _Reading(path, {option.key: option for option in options})
    if root is not None and not (isinstance(root, yaml.ScalarNode) and root.tag == _NULL):
        _mapping(reading, root, "")
    return reading.found, reading.problems


def _unreadable(path: Path, error: Any) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
    reason = " ".join(str(getattr(error, "problem", None) or error).split())
    return f"{where}: this is no YAML: {reason[:200]}"


def _mapping(reading: _Reading, node: Any, prefix: str) -> None:
    if node.id != "mapping":
        what = f"{prefix.rstrip('.')} holds" if prefix else "the file holds"
        reading.complain(node, f"{what} keys with values; write `key: value` lines")
        return
    seen: set[str] = set()
    for key_node, value_node in node.value:
        if key_node.id != "scalar":
            reading.complain(key_node, "a key is a word; write `key: value` lines")
            continue
        key = f"{prefix}{key_node.value}"
        if key in seen:
            reading.complain(key_node, f"{key} stands here a second time; remove one of them")
        elif key in reading.options:
            _value(reading, reading.options[key], value_node)
        elif any(known.startswith(f"{key}.") for known in reading.options):
            # A topic with nothing in it, as when all its lines are comments, is no fault.
            if value_node.tag != _NULL:
                _mapping(reading, value_node, f"{key}.")
        else:
            reading.complain(key_node, _unknown(key, prefix, reading.options))
        seen.add(key)


def _unknown(key: str, prefix: str, options: Mapping[str, schema.Option]) -> str:
    siblings = {
        prefix + known.removeprefix(prefix).split(".")[0] for known in options if known.startswith(prefix)
    }
    elsewhere = [known for known in options if known.endswith(f".{key.rsplit('.', 1)[-1]}")]
    near = difflib.get_close_matches(key, sorted(siblings | options.keys()), n=1) or elsewhere
    remedy = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(siblings))}"
    return f"{key} is no setting; {remedy}"


def _value(reading: _Reading, option: schema.Option, node: Any) -> None:
    try:
        value = _parsed(node, option.kind)
    except ValueError as error:
        reading.complain(node, f"{option.key}: {error}; write {values.described(option.kind)}")
        return
    reading.found[option.key] = Found(value=value, line=node.start_mark.line + 1)


def _parsed(node: Any, kind: Any) -> Any:
    """A node as a value; a scalar is read by the setting's type, not by YAML's guess at it."""
    if node.tag == _NULL and node.id == "scalar":
        if values.is_optional(kind):
            return None
        raise ValueError("the value is missing")
    kind = values.plain(kind)
    if values.is_list(kind):
        return tuple(_elements(node, values.element(kind)))
    if node.id != "scalar":
        raise ValueError(f"this is a {node.id}, not one value")
    if node.style in ("'", '"') and kind in (int, float, bool):
        raise ValueError(f"{node.value!r} in quotes is text")
    return values.parse(_whole(node.value), kind)


def _whole(text: str) -> str:
    """The text with each pair of surrogates, as JSON escapes distant characters, made one character."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise ValueError("half a character is no text") from error


def _elements(node: Any, kind: Any) -> Iterator[Any]:
    if node.id != "sequence":
        raise ValueError("this is not a list; write [a, b]")
    for one in node.value:
        yield _parsed(one, kind)
