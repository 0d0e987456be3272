"""The CustomResourceDefinitions: what people see of them with kubectl."""

from pathlib import Path

import pytest
import yaml

# The API server describes these itself, and refuses a description of the metadata.
OF_EVERY_KIND = {"apiVersion", "kind", "metadata"}
DEFINITIONS = sorted((Path(__file__).parents[2] / "deploy" / "drawbar" / "crds").glob("*.yaml"))


def undescribed(path, schema):
    """Yield the paths of all fields below a schema that `kubectl explain` would show without a description."""
    if path and not schema.get("description", "").strip():
        yield path
    for name, inner in schema.get("properties", {}).items():
        yield from undescribed(f"{path}.{name}" if path else name, inner)
    if isinstance(schema.get("items"), dict):
        for name, inner in schema["items"].get("properties", {}).items():
            yield from undescribed(f"{path}[].{name}", inner)


@pytest.mark.parametrize("file", DEFINITIONS, ids=lambda file: file.stem)
def test_every_field_and_the_kind_itself_have_a_description(file):
    (version,) = yaml.safe_load(file.read_text())["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    assert schema["description"]
    assert set(undescribed("", schema)) == OF_EVERY_KIND
