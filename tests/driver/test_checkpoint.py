"""The record of prepared claims on disk."""

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
        pytest.param(lambda raw: raw[:-10], id="torn"),
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


def test_every_save_makes_another_file_to_whoever_watches(tmp_path):
    file = tmp_path / "checkpoint.json"
    assert checkpoint.stamp(file) is None
    first = checkpoint.save(file, records.Content())
    assert checkpoint.stamp(file) == first
    second = checkpoint.save(file, records.Content())
    assert checkpoint.stamp(file) == second != first
    assert checkpoint.read(file) == (records.Content(), second)


def test_a_device_of_an_unknown_pool_is_held_in_every_pool():
    content = records.Content().with_claim(
        records.PreparedClaim(
            namespace="",
            name="",
            uid="u",
            devices=(records.PreparedDevice(pool="", device="d", cdi_id="v/c=u-d"),),
        )
    )
    assert content.holder("p", "d") is content.holder("q", "d") is not None
    assert content.holder("p", "e") is None


@pytest.mark.parametrize("change", [{"admin": True}, {"share_id": "s"}])
def test_shares_and_admin_access_hold_nothing(change):
    device = records.PreparedDevice(pool="p", device="d", cdi_id="v/c=u-d", **change)
    claim = records.PreparedClaim(namespace="ns", name="c", uid="u", devices=(device,))
    assert records.Content().with_claim(claim).holder("p", "d") is None


text = st.text(max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
    max_leaves=4,
)
KNOWN = {"pool", "device", "cdiID", "requests", "shareID", "admin", "serial"}
KNOWN |= {"namespace", "name", "uid", "devices", "state", "bootID", "claims"}
extras = st.dictionaries(text.filter(lambda key: key not in KNOWN), json_values, max_size=2)
devices = st.builds(
    records.PreparedDevice,
    pool=text,
    device=text,
    cdi_id=text,
    requests=st.lists(text, max_size=2).map(tuple),
    share_id=st.none() | text,
    admin=st.booleans(),
    serial=text,
    unknown=extras,
)
claims = st.builds(
    records.PreparedClaim,
    namespace=text,
    name=text,
    uid=text,
    devices=st.lists(devices, max_size=2).map(tuple),
    state=st.sampled_from(["started", "completed", "unexplained", "of the future"]),
    unknown=extras,
)
contents = st.builds(
    records.Content, boot_id=text, claims=st.dictionaries(text, claims, max_size=2), unknown=extras
)


@given(contents)
def test_whatever_is_written_is_read_again(content):
    assert records.content(json.loads(json.dumps(content.document()))) == content
