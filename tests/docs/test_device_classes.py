"""A device class is one module; everything else that has a list of them is held against `classes.CLASSES` here."""

from pathlib import Path

import pytest
import yaml

from drawbar.driver.api import attachments
from drawbar.driver.node import classes
from drawbar.driver.node.classes import generic
from drawbar.fabric.contract import OFFERED_CLASSES, DeviceClass

ROOT = Path(__file__).parents[2]
NAMES = [str(device_class) for device_class in OFFERED_CLASSES]
WITH_DEVICECLASS = [name for name in NAMES if name != DeviceClass.OTHER]


def documents(path):
    return list(yaml.safe_load_all((ROOT / path).read_text()))


def test_every_class_of_the_contract_but_other_has_one_module():
    assert [*(str(module.device_class) for module in classes.CLASSES), "other"] == NAMES


def test_no_class_code_is_claimed_twice():
    codes = [code for module in classes.CLASSES for code in module.class_codes]
    assert len(codes) == len(set(codes))


def test_the_classes_that_erase_are_those_whose_detach_without_an_erase_is_recorded():
    erasing = {
        str(made.device_class) for made in classes.CLASSES if type(made).eraser is not generic.Generic.eraser
    }
    assert erasing == attachments.ERASED_CLASSES


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
