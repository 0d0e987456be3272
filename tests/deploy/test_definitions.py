"""The CustomResourceDefinitions: what people see of them with kubectl, and that every field is bounded."""

import re
from pathlib import Path

import pytest
import yaml

from drawbar.driver.catalogue import attachment_conditions, reasons
from drawbar.driver.controller import outcomes

NODE = Path(__file__).parents[2] / "driver" / "drawbar" / "driver" / "node"
# The API server describes these itself, and refuses a description of the metadata.
OF_EVERY_KIND = {"apiVersion", "kind", "metadata"}
DEFINITIONS = sorted((Path(__file__).parents[2] / "deploy" / "drawbar" / "definitions").glob("*.yaml"))


def find_undescribed_fields(path, schema):
    """Yield the paths of all fields below a schema that `kubectl explain` would show without a description."""
    if path and not schema.get("description", "").strip():
        yield path
    for name, inner in schema.get("properties", {}).items():
        yield from find_undescribed_fields(f"{path}.{name}" if path else name, inner)
    if isinstance(schema.get("items"), dict):
        for name, inner in schema["items"].get("properties", {}).items():
            yield from find_undescribed_fields(f"{path}[].{name}", inner)


@pytest.mark.parametrize("file", DEFINITIONS, ids=lambda file: file.stem)
def test_every_field_and_the_kind_itself_have_a_description(file):
    (version,) = yaml.safe_load(file.read_text())["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    assert schema["description"]
    assert set(find_undescribed_fields("", schema)) == OF_EVERY_KIND


UNBOUNDED_PATTERN = re.compile(r"[*+]|\{\d+,\}")


def find_unbounded_fields(path, schema):
    """Yield the paths of all fields below a schema that can hold as much as their writer likes."""
    match schema.get("type"):
        case "string":
            pattern = schema.get("pattern", "*")
            if not (
                {"enum", "maxLength"} & schema.keys()
                or schema.get("format") == "date-time"
                or not UNBOUNDED_PATTERN.search(pattern)
            ):
                yield path
        case "array":
            if "maxItems" not in schema:
                yield path
            yield from find_unbounded_fields(f"{path}[]", schema["items"])
        case "object":
            values = schema.get("additionalProperties")
            if isinstance(values, dict):
                if "maxProperties" not in schema:
                    yield path
                yield from find_unbounded_fields(f"{path}{{}}", values)
    for name, inner in schema.get("properties", {}).items():
        yield from find_unbounded_fields(f"{path}.{name}" if path else name, inner)


@pytest.mark.parametrize("file", DEFINITIONS, ids=lambda file: file.stem)
def test_nobody_can_write_a_field_of_any_length(file):
    (version,) = yaml.safe_load(file.read_text())["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    properties = {name: inner for name, inner in schema["properties"].items() if name not in OF_EVERY_KIND}
    assert list(find_unbounded_fields("", schema | {"properties": properties})) == []


@pytest.mark.parametrize(
    "reason",
    [
        reasons.DEVICE_READY,
        reasons.NOT_IN_USE,
        *sorted(outcomes.FAILURES),
        *sorted(outcomes.BLOCKERS),
        reasons.OTHER,
    ],
)
def test_the_definition_takes_each_reason_of_the_daemons(reason):
    (file,) = (file for file in DEFINITIONS if file.stem == "deviceattachments")
    (version,) = yaml.safe_load(file.read_text())["spec"]["versions"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    of_condition = status["conditions"]["items"]["properties"]["reason"]["pattern"]
    assert re.search(of_condition, reason)
    assert re.search(status["error"]["properties"]["reason"]["pattern"], reason)


def test_the_controller_knows_each_reason_of_a_node():
    """The controller reports a reason that it does not know as `Other`."""
    texts = [
        path.read_text() for part in ("attachments", "treatment") for path in (NODE / part).rglob("*.py")
    ]
    written = {getattr(reasons, name) for text in texts for name in re.findall(r"reasons\.([A-Z_]+)", text)}
    others = (attachment_conditions.VISIBLE, attachment_conditions.RELEASED, attachment_conditions.EXCLUSIVE)
    known = outcomes.NODE_FAILURES.union(outcomes.BLOCKERS, *(table.reasons for table in others))
    assert written - known == {reasons.INITIALISING, reasons.INVALID_PARAMETERS}
