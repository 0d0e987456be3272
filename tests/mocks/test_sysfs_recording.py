"""Loading recordings that strangers sent: nothing is written but below the root, and events come as they were."""

import gzip
import json

import pytest

from drawbar.mocks.sysfs import ImpossibleWorld, load_events, load_recording


def write_recording(folder, entries):
    folder.mkdir()
    (folder / "sysfs.json.gz").write_bytes(gzip.compress(json.dumps(entries).encode()))
    return folder


def test_a_folder_is_loaded_by_its_first_snapshot_and_empty_directories_are_there(tmp_path):
    entries = {
        "/sys/bus/pci/slots": {"folder": True},
        "/sys/bus/pci/devices": {"folder": True},
        "/sys/bus/pci/devices/a": {"link": "../../../devices/a"},
        "/sys/devices/a/vendor": {"text": "0x1b36\n", "mode": "0o4444"},
    }
    load_recording(write_recording(tmp_path / "r", entries), tmp_path / "sys")
    assert (tmp_path / "sys/bus/pci/slots").is_dir()
    assert (tmp_path / "sys/bus/pci/devices/a/vendor").read_text() == "0x1b36\n"
    assert (tmp_path / "sys/devices/a/vendor").stat().st_mode & 0o7777 == 0o444


@pytest.mark.parametrize(
    "entries",
    [
        {"/sys/a": {"link": "/etc"}},
        {"/sys/a": {"link": "../../etc"}},
        {"/sys/a": {"link": ".."}, "/sys/a/b": {"text": "x"}},
        {"/sys/a": {"link": "b"}, "/sys/a/c": {"text": "x"}},
        {"/sys/a/x": {"text": "x"}, "/sys/b": {"link": "a"}, "/sys/b/c": {"text": "x"}},
        {"/sys/a": {"text": "x"}, "/sys/a/c": {"text": "x"}},
        {"/sys/a": "text"},
    ],
    ids=[
        "an absolute link",
        "a link out of it",
        "a link to the root",
        "a link and a folder",
        "something behind a link",
        "a file and a folder",
        "text",
    ],
)
def test_a_recording_that_would_reach_beyond_its_root_is_refused(entries, tmp_path):
    with pytest.raises(ImpossibleWorld, match="no recording of /sys"):
        load_recording(write_recording(tmp_path / "r", entries), tmp_path / "sys")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"nonsense", pytest.param(gzip.compress(b"{}")[:-4], id="cut")],
)
def test_a_compressed_snapshot_that_is_torn_is_refused(content, tmp_path):
    (tmp_path / "sysfs.json.gz").write_bytes(content)
    with pytest.raises(ImpossibleWorld, match="no recording of /sys"):
        load_recording(tmp_path, tmp_path / "sys")


def test_events_come_with_their_times_and_as_they_were_on_the_wire(tmp_path):
    (tmp_path / "uevents.jsonl").write_text('{"t": 1.5, "msg": "add@/x\\nACTION=add\\n"}\n')
    (event,) = load_events(tmp_path)
    assert (event.seconds, event.datagram) == (1.5, b"add@/x\0ACTION=add\0")


@pytest.mark.parametrize(
    "line", ["nonsense", "[]", '{"t": 1}', '{"t": "x", "msg": ""}', '{"t": 1, "msg": 2}']
)
def test_events_that_are_none_are_refused(line, tmp_path):
    (tmp_path / "uevents.jsonl").write_text(line)
    with pytest.raises(ImpossibleWorld, match="no recording of uevents"):
        load_events(tmp_path)


def test_without_events_there_are_none(tmp_path):
    assert load_events(tmp_path) == ()
