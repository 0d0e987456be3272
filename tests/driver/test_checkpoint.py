"""The record of prepared claims on disk."""

import json

import pytest

from drawbar.driver.node import checkpoint, errors

DISK = checkpoint.PreparedDevice(pool="p", device="d", cdi_id="drawbar.dev/device=u-d", requests=("r",))
CLAIM = checkpoint.PreparedClaim(namespace="ns", name="c", uid="u", devices=(DISK,))


def test_what_was_saved_is_loaded(tmp_path):
    file = tmp_path / "deep" / "checkpoint.json"
    content = checkpoint.Content(boot_id="b").with_claim(CLAIM)
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
        pytest.param(lambda raw: raw[:-10], id="torn"),
        pytest.param(lambda raw: raw.replace(b"drawbar.dev", b"drawbar.dex"), id="flipped-bytes"),
        pytest.param(lambda raw: b"", id="empty"),
        pytest.param(lambda raw: b"\xff\xfe", id="not-json"),
    ],
)
def test_a_corrupt_file_is_moved_aside_and_nothing_of_it_is_lost(tmp_path, damage):
    file = tmp_path / "checkpoint.json"
    checkpoint.save(file, checkpoint.Content().with_claim(CLAIM))
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
        checkpoint.save(tmp_path / "file" / "checkpoint.json", checkpoint.Content())
