"""The CDI model against the rules of the specification."""

import json

import pytest

from drawbar.cdi import errors, files, spec


def device(name="n1", **edits):
    return spec.Device(name=name, edits=spec.ContainerEdits(**edits))


def spec_of_device(kind="drawbar.dev/nvme", **kwargs):
    return spec.Spec(kind=kind, devices=(device(**kwargs),))


def test_unset_fields_are_left_out_of_the_file():
    edits = spec.ContainerEdits(device_nodes=(spec.DeviceNode(path="/dev/a", major=0, minor=0),))
    bare = spec.Spec(
        kind="a.b/c", devices=(spec.Device(name="n", edits=edits),), edits=spec.ContainerEdits(env=())
    )
    node = {"path": "/dev/a", "major": 0, "minor": 0}
    written = {"name": "n", "containerEdits": {"deviceNodes": (node,)}}
    assert spec.encode(bare) == {"cdiVersion": "0.3.0", "kind": "a.b/c", "devices": (written,)}


def test_a_written_file_is_complete_and_can_be_found_and_removed(tmp_path):
    directory = tmp_path / "cdi"
    file = files.path(directory, "drawbar.dev", "uid-1")
    node = spec.DeviceNode(path="/dev/nvme0", type="c", major=246, minor=0, permissions="rw")
    files.write(file, spec_of_device(device_nodes=(node,)))

    assert json.loads(file.read_text()) == {
        "cdiVersion": "0.3.0",
        "kind": "drawbar.dev/nvme",
        "devices": [
            {
                "name": "n1",
                "containerEdits": {
                    "deviceNodes": [
                        {"path": "/dev/nvme0", "type": "c", "major": 246, "minor": 0, "permissions": "rw"}
                    ]
                },
            }
        ],
    }
    (directory / "other-vendor.json").write_text("{}")
    assert files.owners(directory, "drawbar.dev") == {"uid-1"}
    files.remove(file)
    files.remove(file)
    assert files.owners(directory, "drawbar.dev") == frozenset()
    assert sorted(entry.name for entry in directory.iterdir()) == ["other-vendor.json"]


def test_an_invalid_spec_leaves_the_old_file_as_it_was(tmp_path):
    file = tmp_path / "drawbar.dev-u.json"
    files.write(file, spec_of_device(env=("A=1",)))
    before = file.read_bytes()
    with pytest.raises(errors.InvalidSpec):
        files.write(file, spec_of_device(env=("A",)))
    assert file.read_bytes() == before


def test_an_impossible_directory_is_reported_with_a_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.UnwritableDir, match="mount the directory"):
        files.write(tmp_path / "file" / "cdi" / "x.json", spec_of_device(env=("A=1",)))


def test_the_owners_of_a_directory_that_is_not_there_are_none(tmp_path):
    assert files.owners(tmp_path / "none", "drawbar.dev") == frozenset()
