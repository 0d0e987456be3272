"""The record files: what is in them, and what becomes of what a newer Drawbar wrote."""

import json
import os
import stat
import time
import zlib

import msgspec
import pytest

from drawbar.cdi import spec
from drawbar.driver.node import errors
from drawbar.driver.node.preparation import cdifiles, records, restoring, store

DISK = records.PreparedDevice(pool="p", device="d", cdi_id="drawbar.dev/device=u-d", requests=("r",))
CLAIM = records.PreparedClaim(
    namespace="ns", name="c", uid="u", state="started", devices=(DISK,), boot_id="b"
)
CDI = spec.Spec(
    kind="drawbar.dev/device", devices=(spec.Device(name="u-d", edits=spec.ContainerEdits(env=("A=b",))),)
)

# As a newer Drawbar would write it.
NEWER = {
    "namespace": "ns",
    "name": "c",
    "uid": "u",
    "state": "resetting",
    "bootID": "b",
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


def as_found(stored):
    return restoring.Restored(claims=stored.claims, specs={})


@pytest.fixture
def open_store(tmp_path):
    """Return `await open_store()`, which returns a restored store on the files of the test's folder."""

    async def make(decide=as_found):
        made = store.Store(cdifiles.CdiFiles(tmp_path / "cdi", "drawbar.dev"), tmp_path / "plugin")
        await made.restore(decide)
        return made

    return make


@pytest.fixture
def record(tmp_path):
    return tmp_path / "plugin" / "claims" / "u.json"


def write(record, claim, **more):
    record.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(claim)
    crc32 = zlib.crc32(text.encode())
    head = "".join(f'"{key}":{json.dumps(value)},' for key, value in more.items())
    record.write_text(f'{{"version":1,{head}"crc32":{crc32},"claim":{text}}}')


async def test_a_prepared_claim_is_one_file_with_its_devices(open_store, record):
    made = await open_store()
    await made.start(CLAIM, CDI)
    document = json.loads(record.read_text())
    assert document["claim"] == {
        "namespace": "ns",
        "name": "c",
        "uid": "u",
        "state": "started",
        "bootID": "b",
        "devices": [{"pool": "p", "device": "d", "cdiID": "drawbar.dev/device=u-d", "requests": ["r"]}],
    }
    assert [file.name for file in record.parent.iterdir()] == ["u.json"]
    assert record.stat().st_mode & 0o777 == 0o600
    again = await open_store()
    assert again.claims == {"u": CLAIM}
    assert records.holder(again.claims, "p", "d") == CLAIM
    await again.drop("u")
    assert not record.exists()
    assert made.claims == {}


async def test_a_draft_that_a_crash_left_goes_at_the_next_start(open_store, record):
    await open_store()
    draft = record.with_name(".u.json.tmp")
    draft.write_text("{")
    await open_store()
    assert not draft.exists()


async def test_fields_of_a_newer_version_are_kept(open_store, record):
    await open_store()
    write(record, NEWER, signature="of the future")
    made = await open_store(
        lambda stored: restoring.Restored(claims=_change_boot_id(stored.claims), specs={})
    )
    await made.start(records.PreparedClaim(**{**_fields(CLAIM), "uid": "o", "devices": ()}), CDI)
    assert json.loads(record.read_text())["claim"] == {**NEWER, "bootID": "b2"}


async def test_fields_of_a_newer_version_survive_a_second_prepare(open_store, record):
    write(record, NEWER)
    made = await open_store()
    await made.start(CLAIM, CDI)
    kept = json.loads(record.read_text())["claim"]
    assert kept["priority"] == 7
    assert kept["devices"][0]["partition"] == {"unknown": 1}
    assert (kept["state"], kept["devices"][0]["cdiID"]) == ("started", "drawbar.dev/device=u-d")


async def test_a_record_of_another_claim_is_damaged(open_store, record):
    write(record, {**NEWER, "uid": "x"})
    made = await open_store()
    assert made.claims == {}
    (aside,) = record.parent.iterdir()
    assert aside.name.startswith("u.json.corrupt-")


@pytest.mark.parametrize(
    "create",
    [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to(path)],
    ids=["pipe", "directory", "device", "circle"],
)
async def test_a_record_that_is_no_regular_file_is_moved_aside_and_the_others_stay(
    open_store, record, create
):
    write(record, NEWER)
    create(record.with_name("x.json"))
    assert set((await open_store()).claims) == {"u"}
    assert sorted(each.name.partition("-")[0] for each in record.parent.iterdir()) == [
        "u.json",
        "x.json.corrupt",
    ]


async def test_a_full_disk_keeps_old_records_and_adds_none(open_store, record, monkeypatch):
    made = await open_store()
    await made.start(CLAIM, CDI)
    before = record.read_bytes()
    other = records.PreparedClaim(**{**_fields(CLAIM), "uid": "o", "devices": ()})
    (record.parent / ".o.json.tmp").symlink_to("/dev/full")
    with pytest.raises(errors.CheckpointError, match=r"No space left on device; mount .* with room on it"):
        await made.start(other, CDI)
    assert made.claims == {"u": CLAIM}
    assert record.read_bytes() == before
    assert [file.name for file in record.parent.iterdir()] == ["u.json"]
    await made.start(other, CDI)
    assert made.claims.keys() == {"u", "o"}


@pytest.mark.parametrize(
    ("fails", "syncs"),
    [
        ("the file", ["failed", "file", "directory"]),
        # The second change completes the record that the first one left.
        ("the directory", ["file", "failed", "directory", "file", "directory"]),
    ],
)
async def test_a_record_that_could_not_be_synced_is_synced_by_the_next_try(
    open_store, record, monkeypatch, fails, syncs
):
    synced = []
    fsync = os.fsync

    def fail_fsync(descriptor):
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        if is_directory == (fails == "the directory") and "failed" not in synced:
            synced.append("failed")
            raise OSError(5, "Input/output error")
        synced.append("directory" if is_directory else "file")
        fsync(descriptor)

    made = await open_store()
    monkeypatch.setattr(os, "fsync", fail_fsync)
    with pytest.raises(errors.CheckpointError, match="Input/output error"):
        await made.start(CLAIM, CDI)
    await made.start(CLAIM, CDI)
    assert synced == syncs
    assert record.exists()


@pytest.fixture
def scans(monkeypatch):
    """Return a list that grows with each reading of the directory."""
    listed, scandir = [], os.scandir

    def record_scandir(folder):
        listed.append(folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", record_scandir)
    return listed


async def test_the_directory_is_read_again_only_after_a_change(open_store, record, scans):
    made, other = await open_store(), await open_store()
    await made.start(CLAIM, CDI)
    os.utime(record.parent, ns=(0, 0))
    assert other.claims == {"u": CLAIM}
    scans.clear()
    assert other.claims == {"u": CLAIM}
    assert scans == []
    await made.drop("u")
    assert other.claims == {}


async def test_after_a_change_of_its_own_an_instance_does_not_read_the_directory_again(open_store, scans):
    made = await open_store()
    await made.start(CLAIM, CDI)
    scans.clear()
    assert made.claims == {"u": CLAIM}
    assert scans == []


async def test_a_change_that_leaves_the_modification_time_is_seen(open_store, record):
    made, other = await open_store(), await open_store()
    # As if both changes were in one tick of the clock, however slow the test is.
    tick = time.time_ns() + 10**12
    await made.start(CLAIM, CDI)
    os.utime(record.parent, ns=(tick, tick))
    assert other.claims == {"u": CLAIM}
    await made.drop("u")
    os.utime(record.parent, ns=(tick, tick))
    assert other.claims == {}


async def test_an_unreadable_record_folder_is_reported_by_its_path(tmp_path, open_store):
    (tmp_path / "plugin").mkdir()
    (tmp_path / "plugin" / "claims").write_text("")
    with pytest.raises(errors.CheckpointError, match=r"cannot read the record in .*claims"):
        await open_store()


def _fields(claim):
    return {name: getattr(claim, name) for name in claim.__struct_fields__}


def _change_boot_id(claims):
    return {
        uid: records.PreparedClaim(**{**_fields(claim), "boot_id": "b2"}) for uid, claim in claims.items()
    }


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        ({}, True),
        ({"admin": True}, False),
        ({"share_id": "s"}, False),
        ({"share_id": "s", "composite": "pool-0"}, True),
    ],
    ids=["a device", "admin access", "a device that claims share", "a share that is a device of its own"],
)
def test_a_device_is_its_claims_alone_unless_others_may_use_it_too(changes, held):
    assert msgspec.structs.replace(DISK, **changes).holds("p", "d") is held
