"""Documents that the verbs print for programs."""

import json


def content(text):
    """Return the content of a JSON document: its items, or its fields without version and kind."""
    document = json.loads(text)
    assert document.pop("apiVersion").startswith("cli.drawbar.dev/")
    assert document.pop("kind")
    return document.get("items", document)
