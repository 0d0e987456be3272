"""docs/parameters.md: its examples are obeyed, its lists have the fields."""

import re
from pathlib import Path

import msgspec
import yaml

from drawbar.driver.api import parameters
from drawbar.driver.webhook import review

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "parameters.md").read_text()
FIELDS = (DOCS / "reference" / "parameters.md").read_text()
HEAD = {"apiVersion": parameters.API_VERSION, "kind": parameters.KIND}
TOPICS = {
    "deviceFiles": parameters.DeviceFiles,
    "network": parameters.Network,
    "memory": parameters.Memory,
    "initialise": parameters.Hook,
    "drain": parameters.Hook,
    "cleanUp": parameters.Hook,
    "fpga": parameters.Fpga,
    "minimumVersions": parameters.Versions,
    "virtualFunctions": parameters.VirtualFunctions,
}


def test_the_webhook_admits_the_examples():
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    documents = list(yaml.safe_load_all(example))
    assert [document["kind"] for document in documents] == ["DeviceClass", "ResourceClaim"]
    for document in documents:
        written = msgspec.Raw(msgspec.json.encode(document))
        kind = review.Kind(group="resource.k8s.io", version="v1", kind=document["kind"])
        request = review.Request(uid="u", kind=kind, operation="CREATE", object=written)
        assert list(review.problems(request, "drawbar.dev")) == []
        assert "DeviceParameters" in str(document)


def read_fields(text):
    """Return the fields of a list."""
    return {
        field
        for named in re.findall(r"^- ((?:`[\w.]+`(?:, )?)+): ", text, re.MULTILINE)
        for field in named.replace("`", "").split(", ")
    }


def test_the_lists_have_each_field_and_part_those_refused_in_a_claim():
    by_class, either = (read_fields(text) for text in FIELDS.split("\n## ")[1:])
    assert not by_class & either
    fields = set()
    for name in parameters.DeviceParameters.__struct_encode_fields__:
        below = TOPICS[name].__struct_encode_fields__ if name in TOPICS else ()
        fields |= {f"{name}.{field}" for field in below} or {name}
    assert (by_class | either) - TOPICS.keys() == fields
    for field in fields:
        topic, _, name = field.partition(".")
        wrong = {topic: {name: "?"} if name else 0}
        try:
            parameters.decode(HEAD | wrong, parameters.Source.CLAIM)
        except parameters.Invalid as invalid:
            refused = "administrator" in str(invalid)
        assert refused == (field in by_class), field
