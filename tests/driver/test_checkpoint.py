"""The record of prepared claims on disk."""

import json
import zlib

import pytest

from drawbar.driver.node import checkpoint, errors
from drawbar.driver.node.preparation import records

DISK = records.PreparedDevice(pool="p", device="d", cdi_id="drawbar.dev/device=u-d", requests=("r",))
CLAIM = records.PreparedClaim(namespace="ns", name="c", uid="u", devices=(DISK,))


def written(file, data, version=1, **more):
    """A file of some Drawbar with that content."""
    text = json.dumps(data)
    raw = {"version": version, "crc32": zlib.crc32(text.encode()), "data": text, **more}
    file.write_text(json.dumps(raw))


def data_of(file):
    return json.loads(json.loads(file.read_text())["data"])


def test_what_was_saved_is_loaded(tmp_path):
    file = tmp_path / "deep" / "checkpoint.json"
    content = records.Content(boot_id="b").with_claim(CLAIM)
    checkpoint.save(file, content)
    assert checkpoint.load(file) == content
    assert content.holder("p", "d") == CLAIM
    assert content.without_claim("u").holder("p", "d") is None
    assert sorted(entry.name for entry in file.parent.iterdir()) == ["checkpoint.json"]


def test_no_file_is_no_content(tmp_path):
    assert checkpoint.load(tmp_path / "none.json") is None


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda raw: raw.strip()[:-10], id="torn"),
        pytest.param(lambda raw: raw.replace(b"drawbar.dev", b"drawbar.dex"), id="flipped-bytes"),
        pytest.param(lambda raw: b"", id="empty"),
        pytest.param(lambda raw: b"\xff\xfe", id="not-json"),
    ],
)
def test_a_corrupt_file_is_moved_aside_and_nothing_of_it_is_lost(tmp_path, damage):
    file = tmp_path / "checkpoint.json"
    checkpoint.save(file, records.Content().with_claim(CLAIM))
    broken = damage(file.read_bytes())
    file.write_bytes(broken)
    assert checkpoint.load(file) is None
    (aside,) = tmp_path.glob("checkpoint.json.corrupt-*")
    assert aside.read_bytes() == broken
    assert not file.exists()


def test_a_newer_version_is_refused_and_kept(tmp_path):
    file = tmp_path / "checkpoint.json"
    file.write_text(json.dumps({"version": 99, "crc32": 0, "data": ""}))
    with pytest.raises(errors.CheckpointError, match="upgrade Drawbar"):
        checkpoint.load(file)
    assert file.exists()


def test_a_directory_that_cannot_be_written_is_said_with_the_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.CheckpointError, match="mount"):
        checkpoint.save(tmp_path / "file" / "checkpoint.json", records.Content())


FULL = {
    "bootID": "b",
    "future": {"deep": [1, None]},
    "claims": {
        "u": {
            "namespace": "ns",
            "name": "c",
            "uid": "u",
            "state": "resetting",
            "priority": 7,
            "devices": [
                {
                    "pool": "p",
                    "device": "d",
                    "cdiID": "v/c=u-d",
                    "requests": ["r"],
                    "shareID": "s",
                    "admin": True,
                    "serial": "SN",
                    "partition": {"unknown": 1},
                }
            ],
        }
    },
}


def test_what_a_newer_drawbar_wrote_besides_survives_load_and_save(tmp_path):
    file = tmp_path / "checkpoint.json"
    written(file, FULL, signature="of the future")
    checkpoint.save(file, checkpoint.load(file))
    assert data_of(file) == FULL


def test_what_a_newer_drawbar_wrote_besides_survives_the_changes_of_other_claims_and_of_this_one(tmp_path):
    file = tmp_path / "checkpoint.json"
    written(file, FULL)
    content = checkpoint.load(file).with_claim(CLAIM.replacing(checkpoint.load(file).claims["u"]))
    other = records.PreparedClaim(namespace="ns", name="o", uid="o", devices=())
    checkpoint.save(file, content.with_claim(other).without_claim("o"))
    kept = data_of(file)
    assert kept["future"] == FULL["future"]
    assert kept["claims"]["u"]["priority"] == 7
    assert kept["claims"]["u"]["devices"][0]["partition"] == {"unknown": 1}
    assert kept["claims"]["u"]["state"] == "completed"


@pytest.mark.parametrize(
    "lack",
    [
        pytest.param({"claims": {"u": {"namespace": "ns", "name": "c"}}}, id="claim-without-devices"),
        pytest.param({"claims": {"u": {"devices": []}}}, id="claim-without-uid"),
        pytest.param({"claims": []}, id="claims-no-object"),
        pytest.param({"bootID": 3}, id="boot-id-no-text"),
        pytest.param([], id="no-object"),
    ],
)
def test_a_document_that_means_nothing_is_corrupt_however_right_its_crc(tmp_path, lack):
    file = tmp_path / "checkpoint.json"
    written(file, lack)
    with pytest.raises(errors.CorruptCheckpoint):
        checkpoint.read(file)


def test_a_checkpoint_of_the_first_version_without_states_is_one_of_completed_claims(tmp_path):
    file = tmp_path / "checkpoint.json"
    device = {"pool": "p", "device": "d", "cdiID": "drawbar.dev/device=u-d", "requests": ["r"]}
    claim = {"namespace": "ns", "name": "c", "uid": "u", "devices": [device]}
    written(file, {"bootID": "b", "claims": {"u": claim}})
    assert checkpoint.load(file) == records.Content(boot_id="b", claims={"u": CLAIM})


def test_an_unreadable_file_is_said_with_the_remedy_and_kept(tmp_path):
    file = tmp_path / "checkpoint.json"
    file.mkdir()
    with pytest.raises(errors.CheckpointError, match="cannot read the checkpoint"):
        checkpoint.load(file)
    assert file.exists()


def test_every_save_is_seen_by_whoever_knows_an_earlier_one(tmp_path):
    file = tmp_path / "checkpoint.json"
    first = checkpoint.save(file, records.Content())
    assert checkpoint.is_current(file, first)
    second = checkpoint.save(file, records.Content(), first)
    assert checkpoint.is_current(file, second)
    assert not checkpoint.is_current(file, first)
    assert checkpoint.read(file) == (records.Content(), second)
    third = checkpoint.save(file, records.Content())
    assert [checkpoint.is_current(file, one) for one in (first, second, third)] == [False, False, True]
    file.unlink()
    assert not checkpoint.is_current(file, third)


def test_a_save_that_follows_another_adds_to_the_same_file_until_that_is_full(tmp_path):
    file = tmp_path / "checkpoint.json"
    content = records.Content().with_claim(CLAIM)
    known = checkpoint.save(file, content)
    inode, longest = file.stat().st_ino, known.end + len("1000000")
    for number in range(checkpoint.ROOM_BYTES // longest - 1):
        content = records.Content(boot_id=str(number)).with_claim(CLAIM)
        known = checkpoint.save(file, content, known)
        assert file.stat().st_ino == inode, number
        if number % 100 == 0:
            assert checkpoint.read(file) == (content, known)
    assert file.stat().st_size == checkpoint.ROOM_BYTES
    while known.end > longest:
        before = known
        known = checkpoint.save(file, content, known)
    assert before.end > checkpoint.ROOM_BYTES - longest
    assert file.stat().st_ino != inode
    assert checkpoint.read(file) == (content, known)


@pytest.mark.parametrize("length", [1, 20, -2])
def test_a_line_that_a_crash_cut_short_is_none_and_the_next_save_makes_a_new_file(tmp_path, length):
    file = tmp_path / "checkpoint.json"
    before = records.Content(boot_id="before").with_claim(CLAIM)
    first = checkpoint.save(file, before)
    second = checkpoint.save(file, records.Content(), first)
    raw = bytearray(file.read_bytes())
    cut = second.end + length if length < 0 else first.end + length
    raw[cut : second.end] = b"\n" * (second.end - cut)
    file.write_bytes(raw)
    content, found = checkpoint.read(file)
    assert (content, found) == (before, first)
    assert not checkpoint.is_current(file, found), "somebody may be writing it"
    inode = file.stat().st_ino
    third = checkpoint.save(file, records.Content(boot_id="after"), found)
    assert file.stat().st_ino != inode
    assert checkpoint.read(file) == (records.Content(boot_id="after"), third)
    assert checkpoint.is_current(file, third)
