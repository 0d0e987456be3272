"""Documents for programs: JSON and YAML with apiVersion and kind, names, and kubectl's JSONPath.

Source: kubectl, "JSONPath Support". Fields, indexes, `[*]`, `['key']` and text between braces are understood; filters, slices
and `range` are not.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from drawbar.driver import errors, output

API_VERSION = "cli.drawbar.dev/v1alpha1"
_STEP = re.compile(r"\.?\['([^']*)'\]|\.?\[(\*|-?\d+)\]|\.([A-Za-z_*][\w-]*)")
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}


def is_document(form: str) -> bool:
    """Return whether the form is for programs."""
    return form not in ("table", "wide")


def document(kind: str, content: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Return the content with its version and kind; a sequence becomes the items of a list."""
    fields = dict(content) if isinstance(content, Mapping) else {"items": list(content)}
    return {"apiVersion": API_VERSION, "kind": kind} | fields


def write(
    form: str, kind: str, content: Mapping[str, Any] | Sequence[Any], *, names: Sequence[str] = ()
) -> None:
    """Print a document.

    Args:
        form: `json`, `yaml`, `name` or `jsonpath=TEMPLATE`.
        kind: the document's kind.
        content: the fields, or the items.
        names: KIND/NAME of the objects, for the form `name`.

    Raises:
        errors.UsageError: the template is wrong.
    """
    whole = document(kind, content)
    if form == "name":
        text = "".join(f"{name}\n" for name in names)
    elif form == "yaml":
        import yaml

        text = yaml.safe_dump(whole, sort_keys=False)
    elif form == "json":
        # json.dumps would take one second more for 10,000 devices.
        text = output.ascii_json(msgspec.json.format(msgspec.json.encode(whole))) + "\n"
    else:
        text = evaluate(form.removeprefix("jsonpath="), whole) + "\n"
    sys.stdout.write(text)
    sys.stdout.flush()


def write_event(form: str, kind: str, content: Mapping[str, Any], *, name: str) -> None:
    """Print one document of a stream: a line of JSON, or a YAML document; see `write` for the other forms.

    Args:
        form: as of `write`.
        kind: the document's kind.
        content: the fields.
        name: KIND/NAME of the object.

    Raises:
        errors.UsageError: the template is wrong.
    """
    if form == "json":
        line = msgspec.json.encode(document(kind, content))
        sys.stdout.write(output.ascii_json(line) + "\n")
    else:
        sys.stdout.write("---\n" * (form == "yaml"))
        write(form, kind, content, names=[name])
    sys.stdout.flush()


def evaluate(template: str, content: object) -> str:
    """Return the text of a JSONPath template.

    Raises:
        errors.UsageError: the template is wrong.
    """
    parts = re.split(r"\{([^{}]*)\}", template)
    if len(parts) == 1:
        parts = ["", template, ""]
    shown = []
    for number, part in enumerate(parts):
        if not number % 2:
            shown.append(part)
        elif part.startswith('"') and part.endswith('"'):
            shown.append(re.sub(r"\\[nt\\]", lambda found: _ESCAPES[found[0]], part[1:-1]))
        else:
            shown.append(" ".join(map(_text, _resolve(part, content))))
    return "".join(shown)


def _resolve(path: str, content: object) -> list[object]:
    """Return the values at a path; an absent field has none."""
    values, position = [content], 1 if path.startswith("$") else 0
    if path in (".", "$", "@"):
        return values
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            raise errors.UsageError(
                f"jsonpath: {{{path}}} is not understood at {path[position:]!r}: use fields such as {{.items[*].name}}"
            )
        position = step.end()
        key = next(group for group in step.groups() if group is not None)
        values = [found for value in values for found in _find_values(value, key)]
    return values


def _find_values(value: object, key: str) -> Iterator[object]:
    if isinstance(value, list | tuple):
        if key == "*":
            yield from value
        elif key.lstrip("-").isdecimal() and -len(value) <= int(key) < len(value):
            yield value[int(key)]
    elif isinstance(value, dict):
        if key == "*":
            yield from value.values()
        elif key in value:
            yield value[key]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
