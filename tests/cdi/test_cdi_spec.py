"""The CDI model against the rules of the specification."""

import json

import pytest

from drawbar.cdi import errors, files, spec


def device(name="n1", **edits):
    return spec.Device(name=name, edits=spec.ContainerEdits(**edits))


def one(kind="drawbar.dev/nvme", **kwargs):
    return spec.Spec(kind=kind, devices=(device(**kwargs),))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(one(env=("A=1",)), "0.3.0", id="basics"),
        pytest.param(
            one(device_nodes=(spec.DeviceNode(path="/dev/a", host_path="/dev/b"),)), "0.5.0", id="host-path"
        ),
        pytest.param(one(name="0c", env=("A=1",)), "0.5.0", id="name-begins-with-digit"),
        pytest.param(one(kind="drawbar.dev/a.b", env=("A=1",)), "0.6.0", id="dotted-class"),
    ],
)
def test_the_lowest_version_that_expresses_the_content_is_written(content, expected):
    assert spec.encode(content)["cdiVersion"] == expected


@pytest.mark.parametrize(
    ("content", "word"),
    [
        pytest.param(one(kind="nvme"), "vendor/class", id="kind-without-vendor"),
        pytest.param(one(name="-n"), "'-n'", id="name-starts-with-dash"),
        pytest.param(one(env=("NOVALUE",)), "NAME=VALUE", id="environment-without-value"),
        pytest.param(one(device_nodes=(spec.DeviceNode(path="dev/a"),)), "absolute", id="relative-path"),
        pytest.param(
            one(device_nodes=(spec.DeviceNode(path="/dev/a", type="x"),)), "type", id="unknown-type"
        ),
        pytest.param(
            one(device_nodes=(spec.DeviceNode(path="/dev/a", permissions="x"),)), "permissions", id="perms"
        ),
        pytest.param(spec.Spec(kind="drawbar.dev/nvme", devices=()), "no device", id="empty"),
        pytest.param(
            spec.Spec(kind="drawbar.dev/nvme", devices=(device(env=("A=1",)), device(env=("A=1",)))),
            "twice",
            id="duplicate",
        ),
    ],
)
def test_content_that_the_specification_forbids_is_refused_by_name(content, word):
    with pytest.raises(errors.InvalidSpec, match=word):
        spec.encode(content)


def test_what_is_not_set_is_left_out_of_the_file():
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
    files.write(file, one(device_nodes=(node,)))

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
    files.write(file, one(env=("A=1",)))
    before = file.read_bytes()
    with pytest.raises(errors.InvalidSpec):
        files.write(file, one(env=("A",)))
    assert file.read_bytes() == before


def test_a_directory_that_cannot_be_made_is_said_with_the_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.UnwritableDir, match="mount the directory"):
        files.write(tmp_path / "file" / "cdi" / "x.json", one(env=("A=1",)))


def test_the_owners_of_a_directory_that_is_not_there_are_none(tmp_path):
    assert files.owners(tmp_path / "none", "drawbar.dev") == frozenset()
