"""A device class is one module; everything else that has a list of them is held against `classes.CLASSES` here."""

import json
import re
from pathlib import Path

import pytest
import yaml

from drawbar.driver.api import attachments, fabrics
from drawbar.driver.node import classes
from drawbar.driver.node.classes import generic
from drawbar.driver.node.health import policy
from drawbar.driver.node.local import residents
from drawbar.fabric.contract import OFFERED_CLASSES, DeviceClass
from drawbar.proto.fabric.v1alpha1 import fabric_pb2

ROOT = Path(__file__).parents[2]
NAMES = [str(device_class) for device_class in OFFERED_CLASSES]
WITH_DEVICECLASS = [name for name in NAMES if name != DeviceClass.OTHER]


def documents(path):
    return list(yaml.safe_load_all((ROOT / path).read_text()))


def row(page, begins):
    lines = (ROOT / "docs" / page).read_text().splitlines()
    return "".join(line for line in lines if line.startswith(begins))


def test_every_class_of_the_contract_but_other_has_one_module():
    assert [*(str(module.device_class) for module in classes.CLASSES), "other"] == NAMES


def test_no_class_code_is_claimed_twice():
    codes = [code for module in classes.CLASSES for code in module.class_codes]
    assert len(codes) == len(set(codes))


def test_every_class_is_in_the_protocol_of_adapters():
    missing = [
        device_class
        for device_class in OFFERED_CLASSES
        if f"DEVICE_CLASS_{device_class.name}" not in [*fabric_pb2.DeviceClass.keys()]
    ]
    assert not missing, f"add {missing} to fabric.proto and run make generate"


def test_the_definition_of_attachments_takes_every_class():
    (definition,) = documents("deploy/drawbar/crds/deviceattachments.yaml")
    text = json.dumps(definition)
    enums = [values.split(", ") for values in re.findall(r'"enum": \[([^]]*)\]', text)]
    assert [f'"{name}"' for name in NAMES] in enums, (
        "deploy/drawbar/crds/deviceattachments.yaml: enum of deviceClass"
    )


def test_the_rules_of_composites_take_every_class():
    (definition,) = documents("deploy/drawbar/crds/fabrics.yaml")
    text = json.dumps(definition)
    enums = [values.split(", ") for values in re.findall(r'"enum": \[([^]]*)\]', text)]
    assert [f'"{name}"' for name in NAMES] in enums, "deploy/drawbar/crds/fabrics.yaml: enum of class"


def test_the_classes_that_erase_are_those_whose_detach_without_an_erase_is_recorded():
    erasing = {
        str(made.device_class) for made in classes.CLASSES if type(made).eraser is not generic.Generic.eraser
    }
    assert erasing == attachments.ERASED_CLASSES


def test_a_fabric_may_say_of_every_class_how_it_is_cleaned():
    assert set(fabrics.CleanPolicy.__struct_fields__) == {name.replace("-", "_") for name in NAMES}
    (definition,) = documents("deploy/drawbar/crds/fabrics.yaml")
    (version,) = definition["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    policy = spec["properties"]["policy"]["properties"]["clean"]["properties"]
    assert set(policy) == set(fabrics.CleanPolicy.__struct_encode_fields__), (
        "deploy/drawbar/crds/fabrics.yaml"
    )


# What is given in shares of a device of another class, and the null device.
WITHOUT_MODULE = ("cxl-memory-pool", "none")


def test_the_chart_takes_every_class_and_makes_a_deviceclass_of_each():
    schema = json.loads((ROOT / "deploy/drawbar/values.schema.json").read_text())
    taken = schema["properties"]["deviceClasses"]["properties"]["classes"]["items"]["enum"]
    assert taken == [*NAMES, *WITHOUT_MODULE], "deploy/drawbar/values.schema.json: deviceClasses.classes"
    (values,) = documents("deploy/drawbar/values.yaml")
    assert values["deviceClasses"]["classes"] == [*WITH_DEVICECLASS, *WITHOUT_MODULE], (
        "deploy/drawbar/values.yaml"
    )


@pytest.mark.parametrize(
    "path", ["deviceclasses.yaml", "classic/deviceclasses.yaml", "classic/resourceclasses.yaml"]
)
def test_the_manifests_have_a_class_for_each(path):
    made = {
        document["metadata"]["name"].removesuffix(".drawbar.dev")
        for document in documents(f"deploy/manifests/{path}")
        if document
    }
    assert made >= set(WITH_DEVICECLASS), f"deploy/manifests/{path}: run deploy/render"


@pytest.mark.parametrize(
    ("page", "begins"), [("attributes.md", "| `class` |"), ("classic.md", "| `deviceClass` |")]
)
def test_the_pages_name_every_class(page, begins):
    assert {f"`{name}`" for name in NAMES} <= set(re.findall(r"`[a-z-]+`", row(page, begins))), f"docs/{page}"


@pytest.mark.parametrize(
    ("page", "begins"), [("node.md", "| `localPool.classes` |"), ("local-pool.md", "| `classes` |")]
)
def test_the_pages_of_the_local_pool_name_every_class(page, begins):
    said = set(re.findall(r"[a-z]+(?:-[a-z]+)*", row(page, begins)))
    assert set(NAMES) <= said, f"docs/{page}; node.md and values.schema.json have it from local.residents"


def test_the_classes_with_in_local_pool_are_offered_by_default():
    assert (
        tuple(str(module.device_class) for module in classes.CLASSES if module.in_local_pool)
        == residents.DEFAULT_CLASSES
    )


def test_slow_idle_links_are_expected_of_the_classes_that_slow_them():
    slow = tuple(str(module.device_class) for module in classes.CLASSES if module.slows_idle_link)
    assert policy.Policy().slow_link_expected == slow
