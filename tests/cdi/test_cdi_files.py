"""CDI files on disk: read back, ours told from others', what killed writers left, and who wins between directories."""

import itertools
import json
import os
import threading
import tracemalloc

import pytest

from drawbar.cdi import errors, files, spec
from drawbar.mocks.kubelet import cdi as runtime

PREFIX = "drawbar.dev"
OLD = 1_000_000.0


def content(name="u-1-gpu", vendor=PREFIX, value="1"):
    edits = spec.ContainerEdits(env=(f"A={value}",))
    return spec.Spec(kind=f"{vendor}/device", devices=(spec.Device(name=name, edits=edits),))


def test_a_file_that_is_not_there_has_no_content(tmp_path):
    assert files.read(tmp_path / "none.json") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(b"{", "is not JSON", id="torn"),
        pytest.param(b"\xff\xfe\x00", "is not JSON", id="not-utf-8"),
        pytest.param(b"[" * 100_000, "is not JSON", id="nested-too-deeply"),
        pytest.param(b"{}", "x.json: the CDI file is not an object with a text 'cdiVersion'", id="empty"),
    ],
)
def test_a_file_without_a_specification_is_reported_by_name(tmp_path, text, words):
    (tmp_path / "x.json").write_bytes(text)
    with pytest.raises(errors.InvalidSpec, match=words):
        files.read(tmp_path / "x.json")


def test_a_file_without_end_is_not_read_to_its_end(tmp_path):
    with (tmp_path / "x.json").open("wb") as file:
        file.truncate(files.FILE_BYTES + 1)
    with pytest.raises(errors.InvalidSpec, match="larger than"):
        files.read(tmp_path / "x.json")


def test_an_unreadable_path_is_reported_with_a_remedy(tmp_path):
    (tmp_path / "dir.json").mkdir()
    with pytest.raises(errors.Unreadable, match="remove the file"):
        files.read(tmp_path / "dir.json")
    (tmp_path / "plain").write_text("")
    with pytest.raises(errors.Unreadable, match="mount it into the pod"):
        files.owners(tmp_path / "plain", PREFIX)
    with pytest.raises(errors.UnwritableDir, match="cannot remove"):
        files.remove(tmp_path / "dir.json")


def test_the_files_of_a_driver_with_a_longer_name_are_not_ours(tmp_path):
    files.write(files.path(tmp_path, PREFIX, "u-1"), content())
    files.write(files.path(tmp_path, f"{PREFIX}-x", "u-2"), content(vendor=f"{PREFIX}-x"))
    (tmp_path / f"{PREFIX}-torn.json").write_text("{")
    assert files.owners(tmp_path, PREFIX) == {"u-1", "torn"}
    assert files.owners(tmp_path, f"{PREFIX}-x") == {"u-2"}


@pytest.mark.parametrize(
    "owner", ["x/../../pwn", "../pwn", "..", "/etc/pwn", "", "a\0b", "a\nb", ".hidden", "a b", "ä", "u" * 129]
)
def test_no_file_is_named_after_an_owner_that_leads_elsewhere(tmp_path, owner):
    with pytest.raises(errors.InvalidSpec, match="no CDI file can be named after"):
        files.path(tmp_path / "cdi", PREFIX, owner)


def test_a_file_that_we_would_not_have_named_is_not_ours(tmp_path):
    for name in (f"{PREFIX}-a b.json", f"{PREFIX}-.json", f"{PREFIX}-{'u' * 129}.json"):
        (tmp_path / name).write_text("{")
    assert files.owners(tmp_path, PREFIX) == frozenset()


def test_only_old_drafts_of_a_killed_writer_are_swept(tmp_path):
    names = (f".{PREFIX}-u-1.0a.tmp", f".{PREFIX}-u-2.0b.tmp", ".other-u.0c.tmp", f"{PREFIX}-u-1.json")
    for name in names:
        (tmp_path / name).write_text("{")
        os.utime(tmp_path / name, (OLD, OLD))
    os.utime(tmp_path / names[1], (OLD + files.DRAFT_AGE_SECONDS, OLD + files.DRAFT_AGE_SECONDS))
    assert files.sweep(tmp_path, PREFIX, now=OLD + files.DRAFT_AGE_SECONDS + 1) == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(names[1:])
    assert files.sweep(tmp_path / "none", PREFIX) == 0


def test_a_draft_of_this_moment_is_somebody_elses_work(tmp_path):
    (tmp_path / f".{PREFIX}-u-1.0a.tmp").write_text("{")
    assert files.sweep(tmp_path, PREFIX) == 0


def test_text_that_is_not_unicode_is_refused_in_one_sentence(tmp_path):
    node = spec.DeviceNode(path="/dev/disk-\udcff")
    device = spec.Device(name="d", edits=spec.ContainerEdits(device_nodes=(node,)))
    with pytest.raises(errors.InvalidSpec, match="not Unicode"):
        files.write(tmp_path / "x.json", spec.Spec(kind="example.com/device", devices=(device,)))
    assert not list(tmp_path.iterdir())


def test_a_write_that_fails_leaves_no_draft(tmp_path):
    (tmp_path / "x.json").mkdir()
    with pytest.raises(errors.UnwritableDir, match="read-write"):
        files.write(tmp_path / "x.json", content())
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.json"]


def test_two_writers_of_one_file_never_show_half_a_file(tmp_path):
    file = files.path(tmp_path, PREFIX, "u")
    files.write(file, content())
    threads = [
        threading.Thread(target=lambda: [files.write(file, content(value="x" * 5000)) for _ in range(50)])
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert files.read(file).vendor == PREFIX
    assert [entry.name for entry in tmp_path.iterdir()] == [file.name]


@pytest.fixture
def spec_dirs(tmp_path):
    """Create the static and the dynamic directory."""
    for name in ("etc", "run"):
        (tmp_path / name).mkdir()
    return tmp_path / "etc", tmp_path / "run"


NAME = f"{PREFIX}/device=u-1-gpu"


@pytest.mark.parametrize("other", ["other.json", "other.yaml"])
@pytest.mark.parametrize(
    ("ours", "theirs", "effect"),
    [
        pytest.param("run", "etc", files.Effect.OURS_WINS, id="static-file"),
        pytest.param("run", "run", files.Effect.NOBODY_WINS, id="same-directory"),
        pytest.param("etc", "run", files.Effect.OURS_LOSES, id="we-write-to-the-static-directory"),
    ],
)
def test_a_conflict_with_another_file_has_the_effect_of_the_runtime(spec_dirs, ours, theirs, effect, other):
    root = spec_dirs[0].parent
    file = files.path(root / ours, PREFIX, "u-1")
    files.write(file, content())
    twin = root / theirs / other
    files.write(twin, content(value="theirs"))

    (conflict,) = files.conflicts(spec_dirs, file, content())

    assert (conflict.device, conflict.file, conflict.effect) == (NAME, twin, effect)
    resolved = runtime.devices(spec_dirs).by_id.get(NAME)
    used = {files.Effect.OURS_WINS: file, files.Effect.OURS_LOSES: twin}.get(effect)
    assert (resolved.file if resolved else None) == used
    assert f"{twin}, too: {effect.value}" in str(conflict)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"devices": 1}', '{"kind": "a/b", "devices": [1, {}]}', "a: [", "\x00"]
)
@pytest.mark.parametrize("name", ["other.json", "other.yaml"])
def test_files_of_others_that_nobody_can_read_are_no_conflict(spec_dirs, name, text):
    file = files.path(spec_dirs[1], PREFIX, "u-1")
    files.write(file, content())
    (spec_dirs[0] / name).write_text(text)
    (spec_dirs[0] / "other.txt").write_text("{}")
    assert files.conflicts(spec_dirs, file, content()) == ()


@pytest.mark.parametrize("name", ["other.json", "other.yaml"])
@pytest.mark.parametrize(
    "create", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"]
)
def test_a_file_of_others_that_is_no_regular_file_is_not_read(spec_dirs, name, create):
    file = files.path(spec_dirs[1], PREFIX, "u-1")
    files.write(file, content())
    create(spec_dirs[0] / name)
    create(spec_dirs[1] / f"{PREFIX}-u-2.json")
    assert files.conflicts(spec_dirs, file, content()) == ()
    assert files.owners(spec_dirs[1], PREFIX) == {"u-1", "u-2"}


def test_a_directory_of_ones_own_has_the_highest_priority(tmp_path):
    assert files.read_by_runtimes(files.DYNAMIC) == (files.STATIC, files.DYNAMIC)
    assert files.read_by_runtimes(tmp_path)[-1] == tmp_path
    file = files.path(tmp_path / "none", PREFIX, "u-1")
    assert files.conflicts((tmp_path / "none",), file, content()) == ()


def vendor_file(file, *devices, kind="nvidia.com/gpu"):
    """Write a file as a vendor's tool does, each device with its device files."""
    file.parent.mkdir(parents=True, exist_ok=True)
    listed = [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": path} for path in paths]}}
        for name, paths in devices
    ]
    file.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": kind, "devices": listed}))


def in_files(spec_dirs, **wanted):
    looked_for = {"names": frozenset(), "own": frozenset(), "common": frozenset()}
    return files.find(
        spec_dirs, "nvidia.com/gpu", **looked_for | {key: frozenset(wanted[key]) for key in wanted}
    )


def test_a_device_in_a_vendor_file_is_found_by_name_despite_shared_files(spec_dirs):
    vendor_file(spec_dirs[0] / "nvidia.json", ("0", ["/dev/nvidia0"]), ("GPU-AB", ["/dev/nvidia0"]))
    assert in_files(spec_dirs, names=["gpu-ab"], own=["/dev/nvidia0"]) == "nvidia.com/gpu=GPU-AB"
    assert in_files(spec_dirs, names=["gpu-cd"]) is None


def test_without_its_name_it_is_the_device_that_has_its_files_and_those_of_no_other(spec_dirs):
    vendor_file(
        spec_dirs[1] / "nvidia.json",
        ("all", ["/dev/nvidia1"]),
        ("both", ["/dev/nvidia0", "/dev/nvidia1"]),
        ("1", ["/dev/nvidia1", "/dev/nvidiactl"]),
    )
    assert in_files(spec_dirs, own=["/dev/nvidia1"], common=["/dev/nvidiactl"]) == "nvidia.com/gpu=1"
    assert in_files(spec_dirs, own=["/dev/nvidia1"]) is None, "it has a file that is not the device's"


def test_files_of_another_kind_and_broken_ones_have_no_device_and_the_later_directory_counts(spec_dirs):
    vendor_file(spec_dirs[0] / "old.json", ("old", ["/dev/nvidia0"]))
    vendor_file(spec_dirs[1] / "new.json", ("new", ["/dev/nvidia0"]))
    vendor_file(spec_dirs[1] / "amd.json", ("amd", ["/dev/nvidia0"]), kind="amd.com/gpu")
    (spec_dirs[1] / "broken.json").write_text(
        '{"kind": "nvidia.com/gpu", "devices": [{"name": "x", "containerEdits": {"deviceNodes": 7}}, {"name": 1}]}'
    )
    assert in_files(spec_dirs, own=["/dev/nvidia0"]) == "nvidia.com/gpu=new"


def test_a_device_in_two_files_of_one_directory_is_refused_since_no_runtime_uses_it(spec_dirs):
    for name in ("nvidia", "operator"):
        vendor_file(spec_dirs[1] / f"{name}.json", ("GPU-AB", ["/dev/nvidia0"]))
    vendor_file(spec_dirs[0] / "nvidia.json", ("GPU-AB", ["/dev/nvidia0"]))
    for wanted in ({"names": ["gpu-ab"]}, {"own": ["/dev/nvidia0"]}):
        with pytest.raises(
            errors.AmbiguousDevice, match=r"nvidia\.json and .*operator\.json, so no container"
        ):
            in_files(spec_dirs, **wanted)


def test_a_device_with_the_name_of_one_in_the_later_directory_is_not_found(spec_dirs):
    """A runtime would give the container the other device's files."""
    vendor_file(spec_dirs[0] / "old.json", ("0", ["/dev/nvidia0"]))
    vendor_file(spec_dirs[1] / "new.json", ("0", ["/dev/nvidia1"]))
    assert in_files(spec_dirs, own=["/dev/nvidia0"]) is None


@pytest.mark.parametrize(("path", "found"), [("/dev/nvidia0", "nvidia.com/gpu=0"), ("/dev/nvidia1", None)])
def test_the_files_of_a_driver_in_a_container_are_those_of_the_host(spec_dirs, path, found):
    node = {"path": path, "hostPath": "/run/nvidia/driver/dev/nvidia0"}
    device = {"name": "0", "containerEdits": {"deviceNodes": [node]}}
    spec_dirs[1].mkdir(parents=True, exist_ok=True)
    (spec_dirs[1] / "nvidia.json").write_text(json.dumps({"kind": "nvidia.com/gpu", "devices": [device]}))
    assert in_files(spec_dirs, own=[path]) == found


def merge_bomb():
    """Return a mapping of which each level merges nine times the one before."""
    levels = "abcdefghij"
    lines = ["a: &a {name: '0'}"]
    for below, level in itertools.pairwise(levels):
        merged = ", ".join([f"*{below}"] * 9)
        lines.append(f"{level}: &{level} {{<<: [{merged}], k{level}: 1}}")
    return "\n".join(lines)


def devices_with_one_list(devices, nodes):
    """Return devices that share one list of device files by an alias."""
    shared = ", ".join(["{path: /dev/nvidia0}"] * nodes)
    lines = [f"edits: &all {{deviceNodes: [{shared}]}}", "devices:"]
    return "\n".join(lines + [f"- {{name: d{number}, containerEdits: *all}}" for number in range(devices)])


KIND = "kind: nvidia.com/gpu\n"


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{merge_bomb()}\n{KIND}", id="merge keys"),
        pytest.param(devices_with_one_list(1000, 1000) + f"\n{KIND}", id="one list for all devices"),
        pytest.param(f"{KIND}a: {'1:' * 120_000}1", id="one number"),
        pytest.param(f"{KIND}a: {'[' * 200_000}", id="deep"),
        pytest.param(f"{KIND}devices:\n- name: GPU-AB\n" + "# a\n" * files.YAML_BYTES, id="long"),
    ],
)
def test_a_file_that_would_take_long_to_read_has_no_device(spec_dirs, text):
    (spec_dirs[1] / "other.yaml").write_text(text)
    assert in_files(spec_dirs, names=["gpu-ab"], own=["/dev/nvidia0"]) is None


def test_a_name_that_is_a_number_in_yaml_is_a_name_as_in_the_runtimes(spec_dirs):
    (spec_dirs[1] / "nvidia.yaml").write_text(f"{KIND}devices:\n- name: 0\n")
    assert in_files(spec_dirs, names=["0"]) == "nvidia.com/gpu=0"


def test_a_kind_or_name_of_any_length_is_compared_and_not_copied(spec_dirs):
    file = files.path(spec_dirs[1], PREFIX, "u-1")
    files.write(file, content())
    listed = [{"name": str(number)} for number in range(50_000)]
    (spec_dirs[0] / "other.json").write_text(json.dumps({"kind": "k" * 1_000_000, "devices": listed}))
    tracemalloc.start()
    try:
        assert files.conflicts(spec_dirs, file, content()) == ()
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()
