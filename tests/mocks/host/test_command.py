"""The options of `drawbar mock host`, and those of the simulated fabric that are for a cluster."""

import argparse

import pytest

from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import errors
from drawbar.mocks.fabric import command as fabric
from drawbar.mocks.fabric import pool
from drawbar.mocks.host import command


def parse_arguments(module, *arguments):
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return parser.parse_args(arguments)


def host(tmp_path, *more):
    required = ("--node-name", "n", "--root", str(tmp_path / "sys"), "--uevents", str(tmp_path / "u"))
    return parse_arguments(command, *required, *more)


async def test_a_number_of_slots_that_no_host_has_is_refused(tmp_path):
    with pytest.raises(errors.UsageError, match="--slots 0 is not between 1 and"):
        await command.serve(host(tmp_path, "--slots", "0"))


async def test_a_host_is_of_a_node(tmp_path):
    with pytest.raises(errors.UsageError, match=r"needs --node-name and --uevents \(or --pull SLOT\)"):
        await command.serve(parse_arguments(command, "--root", str(tmp_path / "sys")))


async def test_a_card_of_a_missing_tree_cannot_be_pulled(tmp_path):
    arguments = parse_arguments(command, "--root", str(tmp_path / "sys"), "--pull", "1")
    with pytest.raises(errors.MockError, match="no mocked sysfs tree"):
        await command.serve(arguments)


async def test_a_folder_with_something_else_is_refused_and_stays_as_it_is(tmp_path):
    (tmp_path / "sys").mkdir()
    (tmp_path / "sys" / "mine").touch()
    with pytest.raises(errors.MockError, match="no mocked sysfs tree"):
        await command.serve(host(tmp_path))
    assert (tmp_path / "sys" / "mine").exists()


async def test_an_unwritable_directory_is_reported_with_a_remedy(tmp_path):
    (tmp_path / "file").touch()
    arguments = host(tmp_path)
    arguments.root = tmp_path / "file" / "sys"
    with pytest.raises(errors.UsageError, match="choose another --root"):
        await command.serve(arguments)


@pytest.mark.parametrize(
    "options",
    [("--listen", "unix:/tmp/f"), ("--listen", "unix:/tmp/f", "--config", "f", "--devices", "gpu=1")],
)
async def test_a_fabric_has_its_devices_from_one_source(options):
    with pytest.raises(errors.UsageError, match="one of --config and --devices"):
        await fabric.serve(parse_arguments(fabric, *options))


def test_amounts_of_devices_are_read_from_a_text():
    assert pool.parse_amounts("gpu=4,nvme=0") == {DeviceClass.GPU: 4, DeviceClass.NVME: 0}


@pytest.mark.parametrize("text", ["", "gpu", "gpu=", "gpu=-1", "gpu=65", "what=1", "gpu=1,"])
def test_an_invalid_amount_is_refused_with_the_classes(text):
    with pytest.raises(ValueError, match="write CLASS=N, with a class of gpu"):
        pool.parse_amounts(text)
