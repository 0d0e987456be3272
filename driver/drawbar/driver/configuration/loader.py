"""The composition of the settings: default, then file, then environment, then flags; the later wins. They are printed here, too.

The file is YAML, and so JSON: a mapping of keys as `schema` has them, read with the line of every value. A key that is unknown,
doubled or of another type is a problem that names file, line and key; nothing is taken from a file with problems.
"""

import argparse
import dataclasses
import difflib
import json
import os
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from drawbar.driver import errors
from drawbar.driver.configuration import schema

LIMIT_BYTES = 1024 * 1024
_NULL = "tag:yaml.org,2002:null"


class FileValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value of the file and the line it stands on."""

    value: Any
    line: int


@dataclass(slots=True)
class _Reading:
    path: Path
    options: Mapping[str, schema.Option]
    values: dict[str, FileValue] = dataclasses.field(default_factory=dict)
    problems: list[str] = dataclasses.field(default_factory=list)

    def complain(self, node: Any, sentence: str) -> None:
        self.problems.append(f"{self.path}:{node.start_mark.line + 1}: {sentence}")


def read_file(path: Path, options: Sequence[schema.Option]) -> tuple[dict[str, FileValue], list[str]]:
    """Return the file's values by key, and its problems."""
    # Imported here: a daemon with all its settings in flags and environment does not pay for it.
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
        return {}, [f"{path}: this is not YAML; write `key: value` lines"]
    reading = _Reading(path, {option.key: option for option in options})
    if root is not None and not (isinstance(root, yaml.ScalarNode) and root.tag == _NULL):
        _read_mapping(reading, root, "")
    return reading.values, reading.problems


def _unreadable(path: Path, error: Any) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
    reason = " ".join(str(getattr(error, "problem", None) or error).split())
    return f"{where}: this is not YAML: {reason[:200]}"


def _read_mapping(reading: _Reading, node: Any, prefix: str) -> None:
    if node.id != "mapping":
        what = f"{prefix.rstrip('.')} holds" if prefix else "the file holds"
        reading.complain(node, f"{what} keys with values; write `key: value` lines")
        return
    seen: set[str] = set()
    for key_node, value_node in node.value:
        if key_node.id != "scalar":
            reading.complain(key_node, "a key is a word; write `key: value` lines")
            continue
        try:
            key = f"{prefix}{_check_text(key_node.value)}"
        except ValueError as error:
            reading.complain(key_node, f"a key cannot be read: {error}; write `key: value` lines")
            continue
        if key in seen:
            reading.complain(key_node, f"{key} appears twice; remove one of them")
        elif key in reading.options:
            _value(reading, reading.options[key], value_node)
        elif any(option_key.startswith(f"{key}.") for option_key in reading.options):
            # A topic with nothing in it, as when all its lines are comments, is no fault.
            if value_node.tag != _NULL:
                _read_mapping(reading, value_node, f"{key}.")
        else:
            reading.complain(key_node, _unknown(key, prefix, reading.options))
        seen.add(key)


def _unknown(key: str, prefix: str, options: Mapping[str, schema.Option]) -> str:
    siblings = {
        prefix + option_key.removeprefix(prefix).split(".")[0]
        for option_key in options
        if option_key.startswith(prefix)
    }
    elsewhere = [option_key for option_key in options if option_key.endswith(f".{key.rsplit('.', 1)[-1]}")]
    near = difflib.get_close_matches(key, sorted(siblings | options.keys()), n=1) or elsewhere
    remedy = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(siblings))}"
    return f"{key} is not a setting; {remedy}"


def _value(reading: _Reading, option: schema.Option, node: Any) -> None:
    try:
        value = _parse_node(node, option.kind)
    except ValueError as error:
        reading.complain(node, f"{option.key}: {error}; write {schema.describe_type(option.kind)}")
        return
    reading.values[option.key] = FileValue(value=value, line=node.start_mark.line + 1)


def _parse_node(node: Any, kind: Any) -> Any:
    """Return a node's value; read a scalar by the setting's type, not by YAML's guess."""
    if node.tag == _NULL and node.id == "scalar":
        if schema.is_optional(kind):
            return None
        raise ValueError("the value is missing")
    kind = schema.plain_kind(kind)
    if schema.is_list(kind):
        return tuple(_elements(node, schema.element_kind(kind)))
    if node.id != "scalar":
        raise ValueError(f"this is a {node.id}, not one value")
    if node.style in ("'", '"') and kind in (int, float, bool):
        raise ValueError(f"{node.value!r} in quotes is text")
    return schema.parse(_check_text(node.value), kind)


def _check_text(text: str) -> str:
    """Return the text with each pair of surrogates, JSON's escape of a distant character, as one character."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise ValueError("half a character is no text") from error


def _elements(node: Any, kind: Any) -> Iterator[Any]:
    if node.id != "sequence":
        raise ValueError("this is not a list; write [a, b]")
    for element in node.value:
        yield _parse_node(element, kind)


T = TypeVar("T")

DEFAULT = "default"
FILE_VARIABLE = f"{schema.PREFIX}CONFIG"
# Kubernetes sets these variables in every container for a Service named drawbar-something.
_OF_A_SERVICE = re.compile(rf"{schema.PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT|PORT)(_\w+)?")


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One effective setting.

    Attributes:
        source: `default`, `FILE:LINE`, the name of a variable, or a flag.
    """

    option: schema.Option
    value: Any
    source: str


class Loaded(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """All settings of a daemon.

    Attributes:
        settings: the dataclass that was asked for.
        effective: each setting with its source, in the order of the fields.
        problems: a sentence for each value that is of the right type and still wrong; see `validate`.
        ignored: variables that look like settings and are none.
    """

    settings: T
    effective: tuple[Setting, ...]
    problems: tuple[str, ...]
    ignored: tuple[str, ...]

    def validate(self) -> T:
        """Return the settings.

        Raises:
            errors.UsageError: something is wrong; the message lists all of it.
        """
        refuse(self.problems)
        return self.settings


def refuse(problems: Sequence[str]) -> None:
    """Raise an error with all problems, if there are any.

    Raises:
        errors.UsageError: there are.
    """
    if len(problems) == 1:
        raise errors.UsageError(problems[0])
    if problems:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise errors.UsageError(f"{len(problems)} settings are wrong:{listed}")


def load(
    settings: type[T],
    arguments: argparse.Namespace,
    *,
    problems: Callable[[T], Sequence[str]],
    environ: Mapping[str, str] = os.environ,
) -> Loaded[T]:
    """Read file, environment and flags.

    Args:
        settings: a dataclass whose fields all have defaults.
        arguments: parsed by a parser that `flags.add` has completed.
        problems: judges the values once all are of the right type.
        environ: the process's environment.

    Raises:
        errors.UsageError: a value is of the wrong type, a key is unknown, or the file cannot be read.
    """
    options = schema.options(settings)
    wrong: list[str] = []
    effective = {
        option.key: Setting(option=option, value=option.default, source=DEFAULT) for option in options
    }
    for source in (
        _from_file(options, arguments, environ, wrong),
        _from_environment(options, environ, wrong),
    ):
        effective |= {setting.option.key: setting for setting in source}
    effective |= {setting.option.key: setting for setting in _from_flags(options, arguments, wrong)}
    refuse(wrong)
    made: T = _make_settings(
        settings, {setting.option.path: setting.value for setting in effective.values()}, ()
    )
    return Loaded(
        settings=made,
        effective=tuple(effective.values()),
        problems=tuple(_add_source(sentence, tuple(effective.values())) for sentence in problems(made)),
        ignored=tuple(_list_ignored(options, environ)),
    )


def _from_file(
    options: Sequence[schema.Option],
    arguments: argparse.Namespace,
    environ: Mapping[str, str],
    wrong: list[str],
) -> Iterator[Setting]:
    name = getattr(arguments, "config", None) or environ.get(FILE_VARIABLE)
    if not name:
        return
    values, problems = read_file(Path(name), options)
    wrong += problems
    for option in options:
        if option.key in values:
            file_value = values[option.key]
            yield Setting(option=option, value=file_value.value, source=f"{name}:{file_value.line}")


def _from_environment(
    options: Sequence[schema.Option], environ: Mapping[str, str], wrong: list[str]
) -> Iterator[Setting]:
    for option in options:
        # An empty variable is one that is not set: manifests often leave them so.
        name = next((name for name in option.variables if environ.get(name)), None)
        if name is not None:
            yield from _parse_setting(option, environ[name], name, wrong)


def _from_flags(
    options: Sequence[schema.Option], arguments: argparse.Namespace, wrong: list[str]
) -> Iterator[Setting]:
    for option in options:
        argument = getattr(arguments, option.key, None)
        if isinstance(argument, bool):
            yield Setting(option=option, value=argument, source=option.flag)
        elif argument is not None:
            text = ",".join(argument) if isinstance(argument, list) else argument
            yield from _parse_setting(option, text, option.flag, wrong)


def _parse_setting(option: schema.Option, text: str, source: str, wrong: list[str]) -> Iterator[Setting]:
    try:
        yield Setting(option=option, value=schema.parse(text, option.kind), source=source)
    except ValueError as error:
        wrong.append(f"{source}: {error}")


def _make_settings(settings: Any, values: Mapping[tuple[str, ...], Any], path: tuple[str, ...]) -> Any:
    kinds = typing.get_type_hints(settings)
    content = {}
    for field in dataclasses.fields(settings):
        here = (*path, field.name)
        content[field.name] = (
            values[here] if here in values else _make_settings(kinds[field.name], values, here)
        )
    return settings(**content)


def _add_source(sentence: str, effective: Sequence[Setting]) -> str:
    """Return the sentence, with the value's source if the name in it does not show that."""
    words = set(re.findall(r"[\w.-]+", sentence))
    for setting in effective:
        if _names(setting.option) & words:
            is_named = setting.source == DEFAULT or setting.source in words
            return sentence if is_named else f"{sentence} (set by {setting.source})"
    return sentence


def _names(option: schema.Option) -> set[str]:
    """Return its names in a sentence; a field's name only if it is not a plain word."""
    field = option.path[-1]
    names = {option.flag, option.key if option.topic.key else "", field if "_" in field else ""}
    return names - {""}


def _list_ignored(options: Sequence[schema.Option], environ: Mapping[str, str]) -> Iterator[str]:
    expected = {name for option in options for name in option.variables} | {FILE_VARIABLE}
    for name in sorted(environ):
        if name.startswith(schema.PREFIX) and name not in expected and not _OF_A_SERVICE.fullmatch(name):
            yield name


# Words that YAML takes for themselves in every place of a document.
_BARE = re.compile(r"[A-Za-z/][A-Za-z0-9_/.-]*")
_TAKEN = schema.TRUE | schema.FALSE | schema.NONE | {"y", "n"}


def as_yaml(effective: Sequence[Setting]) -> str:
    """Return an equal configuration file, with the source of each value in a comment."""
    return "".join(f"{line}\n" for line in _lines(effective))


def as_json(effective: Sequence[Setting]) -> str:
    """Return a JSON object by key, each with `value` and `source`."""
    content = {
        setting.option.key: {"value": schema.builtin(setting.value), "source": setting.source}
        for setting in effective
    }
    return json.dumps(content, indent=1) + "\n"


def _lines(effective: Sequence[Setting]) -> Iterator[str]:
    # Plain settings first, then topic by topic: a topic's lines must stand together.
    open_topics: tuple[str, ...] = ()
    for setting in sorted(effective, key=lambda setting: bool(setting.option.topic.path)):
        *topics, name = setting.option.key.split(".")
        for depth, topic in enumerate(topics):
            if open_topics[: depth + 1] != tuple(topics[: depth + 1]):
                yield f"{'  ' * depth}{topic}:"
        open_topics = tuple(topics)
        yield f"{'  ' * len(topics)}{name}: {_scalar(schema.builtin(setting.value))}  # {setting.source}"


def _scalar(value: object) -> str:
    if isinstance(value, str) and _BARE.fullmatch(value) and value.lower() not in _TAKEN:
        return value
    if isinstance(value, str):
        return f'"{"".join(map(_escape, value))}"'
    if isinstance(value, list):
        return f"[{', '.join(map(_scalar, value))}]"
    # JSON of all other values is YAML.
    return json.dumps(value)


def _escape(character: str) -> str:
    # JSON's own escapes split distant characters in two, which YAML does not know.
    if " " <= character <= "~":
        return f"\\{character}" if character in '"\\' else character
    return f"\\u{ord(character):04x}" if character <= "\uffff" else f"\\U{ord(character):08x}"


def add_flags(parser: argparse.ArgumentParser, settings: type) -> None:
    """Add `--config` and a flag for every setting that has one, grouped by topic.

    Values stay text until `loader.load` reads them, so that all errors are listed at once.
    """
    parser.add_argument(
        "--config",
        metavar="FILE",
        help=f"settings as YAML; the environment and flags win over it (default: ${FILE_VARIABLE})",
    )
    groups: dict[str, Any] = {}
    for option in schema.options(settings):
        if not option.flag:
            continue
        topic = option.topic
        if topic.key and topic.key not in groups:
            groups[topic.key] = parser.add_argument_group(topic.key, topic.help)
        _add_flag(groups.get(topic.key, parser), option)


def _add_flag(target: Any, option: schema.Option) -> None:
    # argparse formats help with %; a default may hold one.
    text = f"{option.help} ({_describe_default(option)})".strip().replace("%", "%%")
    if schema.plain_kind(option.kind) is bool:
        action: Any = argparse.BooleanOptionalAction
        target.add_argument(option.flag, dest=option.key, action=action, default=None, help=text)
    elif schema.is_list(schema.plain_kind(option.kind)):
        target.add_argument(option.flag, dest=option.key, action="append", metavar=option.metavar, help=text)
    else:
        target.add_argument(option.flag, dest=option.key, metavar=option.metavar, help=text)


def _describe_default(option: schema.Option) -> str:
    # The variable of the rule is the flag in capitals; only others are listed.
    variables = [f"${name}" for name in option.variables[1:]]
    shown = _format_value(option.default)
    return (
        ", else ".join((f"default: {variables[0]}", *variables[1:], *([shown] if shown else ())))
        if variables
        else (f"default: {shown or 'none'}")
    )


def _format_value(value: Any) -> str:
    plain = schema.builtin(value)
    if isinstance(plain, bool):
        return "yes" if plain else "no"
    if isinstance(plain, Sequence) and not isinstance(plain, str):
        return ",".join(plain)
    return "" if plain is None else str(plain)
