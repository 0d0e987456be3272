"""A CDI specification as JSON, both ways; pure.

`encode` leaves out what is not set; `decode` takes back exactly what `encode` can give, and refuses a field that it
does not know, as every runtime does, since what it stands for would be lost on the next write.

Source: Container Device Interface specification 1.1.0, schema/schema.json and schema/defs.json.
"""

from typing import Any

import msgspec

from drawbar.cdi import errors, rules, spec, versions


def encode(content: spec.Spec) -> dict[str, Any]:
    """The document of a valid specification, in the lowest version that expresses it.

    Raises:
        errors.InvalidSpec: it is not valid.
    """
    rules.validate(content)
    document = {"cdiVersion": versions.lowest(content), **msgspec.to_builtins(content)}
    if content.edits == spec.EMPTY:
        # msgspec leaves out what is its default itself, and not what equals it.
        document.pop("containerEdits", None)
    return document


def decode(document: object) -> spec.Spec:
    """The specification that a document holds.

    Raises:
        errors.InvalidSpec: it holds none, or one that breaks a rule; the message names the place.
    """
    fields = dict(document) if isinstance(document, dict) else {}
    version = fields.pop("cdiVersion", None)
    if not isinstance(version, str):
        raise errors.InvalidSpec("the CDI file is no object with a text 'cdiVersion'")
    try:
        content = msgspec.convert(fields, spec.Spec)
    except msgspec.ValidationError as error:
        raise errors.InvalidSpec(f"the CDI file is not as its schema has it: {error}") from error
    rules.validate(content)
    version = version.removeprefix("v")
    if version not in versions.KNOWN:
        raise errors.InvalidSpec(f"CDI spec {content.kind} is of the unknown version {version!r}")
    if not versions.covers(version, content):
        raise errors.InvalidSpec(
            f"CDI spec {content.kind} says version {version} and uses what came with {versions.lowest(content)}"
        )
    return content
