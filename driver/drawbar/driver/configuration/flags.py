"""Settings as options of a command line."""

import argparse
from collections.abc import Sequence
from typing import Any

from drawbar.driver.configuration import loader, schema, values


def add(parser: argparse.ArgumentParser, settings: type) -> None:
    """Adds `--config` and a flag for every setting that has one, grouped by topic.

    Values stay text until `loader.load` reads them, so that all that is wrong is said at once.
    """
    parser.add_argument(
        "--config",
        metavar="FILE",
        help=f"settings as YAML; the environment and flags win over it (default: ${loader.FILE_VARIABLE})",
    )
    groups: dict[str, Any] = {}
    for option in schema.options(settings):
        if not option.flag:
            continue
        topic = option.topic
        if topic.key and topic.key not in groups:
            groups[topic.key] = parser.add_argument_group(topic.key, topic.help)
        _add(groups.get(topic.key, parser), option)


def _add(target: Any, option: schema.Option) -> None:
    # argparse formats help with %; a default may hold one.
    text = f"{option.help} ({_default(option)})".strip().replace("%", "%%")
    if values.plain(option.kind) is bool:
        action: Any = argparse.BooleanOptionalAction
        target.add_argument(option.flag, dest=option.key, action=action, default=None, help=text)
    elif values.is_list(values.plain(option.kind)):
        target.add_argument(option.flag, dest=option.key, action="append", metavar=option.metavar, help=text)
    else:
        target.add_argument(option.flag, dest=option.key, metavar=option.metavar, help=text)


def _default(option: schema.Option) -> str:
    # The variable of the rule is the flag in capitals; only others need to be said.
    others = [f"${name}" for name in option.variables[1:]]
    shown = _shown(option.default)
    return (
        ", else ".join((f"default: {others[0]}", *others[1:], *([shown] if shown else ())))
        if others
        else (f"default: {shown or 'none'}")
    )


def _shown(value: Any) -> str:
    found = values.builtin(value)
    if isinstance(found, bool):
        return "yes" if found else "no"
    if isinstance(found, Sequence) and not isinstance(found, str):
        return ",".join(found)
    return "" if found is None else str(found)
