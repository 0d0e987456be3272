"""Rollout, rollback and a second rollout between this version and the one before the record files.

`upgrade` has what the version before left on a node: in `rollout` it was the only one that ran, and `second-rollout` is
after a rollback. The empty lines with which it fills its file up to 512 KiB are left out there, and put back here.
"""

import importlib.util
import json
import shutil
import zlib
from pathlib import Path

import pytest

from drawbar.driver.node import classes, errors
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.preparation import checkpointlog, records
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import sysfs

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("dying", HERE / "dying.py")
dying = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(dying)

DISK = records.PreparedDevice(pool="p", device="d", cdi_id="drawbar.dev/device=u-d", requests=("r",))
CLAIM = records.PreparedClaim(
    namespace="ns", name="c", uid="u", state="completed", devices=(DISK,), boot_id="b"
)


class Node:
    """A node's files, and the daemons of this version and of the one before that come and go."""

    def __init__(self, folder, host):
        self.folder, self.host = folder, host
        self.file = folder / "checkpoint.json"

    def left(self, name):
        """Write what the version before left."""
        shutil.copytree(HERE / "upgrade" / name, self.folder, dirs_exist_ok=True)
        self.file.write_bytes(self.file.read_bytes().ljust(512 * 1024, b"\n"))

    async def started(self, boot_id="boot-1"):
        instance, _ = dying.made(self.folder, *self.host, boot_id)
        await instance.restore()
        return instance

    def content(self):
        """Return what the version before takes for the content: that of the last whole line."""
        line = json.loads(self.file.read_bytes().rstrip(b"\n").splitlines()[-1])
        assert line["version"] == 1
        assert zlib.crc32(line["data"].encode()) == line["crc32"]
        return json.loads(line["data"])

    def before_writes(self, change, *, replaces=False):
        """Make the change to the claims as the version before: it adds a line, or makes a new file of 512 KiB."""
        content = self.content()
        change(content["claims"])
        data = json.dumps(content)
        line = {"version": 1, "serial": 5, "crc32": zlib.crc32(data.encode()), "data": data}
        raw = json.dumps(line).encode() + b"\n"
        written = b"" if replaces else self.file.read_bytes().rstrip(b"\n") + b"\n"
        draft = self.folder / "draft"
        draft.write_bytes((written + raw).ljust(512 * 1024 if replaces else 0, b"\n"))
        if replaces:
            draft.rename(self.file)
        else:
            self.file.write_bytes(draft.read_bytes())

    @property
    def recorded(self):
        return {file.name.removesuffix(".json") for file in (self.folder / "claims").glob("*.json")}

    @property
    def cdi(self):
        names = {file.name for file in (self.folder / "cdi").iterdir()}
        return {name.removeprefix("drawbar.dev-").removesuffix(".json") for name in names}


@pytest.fixture
def node(tmp_path):
    tree = sysfs.SysfsTree.create(tmp_path / "sys")
    for slot, serial in enumerate(dying.SERIALS.values(), start=1):
        disk = sysfs.MockDevice(device_class=DeviceClass.NVME, vendor=0x1B36, device=0x10, serial=serial)
        tree.attach(slot, disk)
    (tmp_path / "node").mkdir()
    return Node(tmp_path / "node", (reader.read(tmp_path / "sys"), classes.Host.from_sysfs(tmp_path / "sys")))


def entry(uid, device):
    held = {"pool": "p", "device": device, "cdiID": f"drawbar.dev/device={uid}-{device}", "requests": ["r"]}
    return {"namespace": "ns", "name": uid, "uid": uid, "state": "started", "devices": [held]}


# --- rollout ---


async def test_a_rollout_takes_over_what_the_version_before_prepared(node):
    node.left("rollout")
    before = {file.name: file.read_bytes() for file in (node.folder / "cdi").iterdir()}
    instance = await node.started()
    assert (instance.holder("p", "d1"), instance.holder("p", "d2")) == ("u3", "u2")
    assert node.recorded == node.cdi == {"u2", "u3"}
    assert {file.name: file.read_bytes() for file in (node.folder / "cdi").iterdir()} == before
    assert {claim.state for claim in instance.store.claims.values()} == {"completed"}
    await instance.unprepare(dying.claim("u3"))
    await instance.prepare(dying.claim("u1"))
    assert node.recorded == node.cdi == {"u1", "u2"}


async def test_a_rollout_after_a_reboot_takes_over_what_the_version_before_prepared(node):
    node.left("rollout")
    shutil.rmtree(node.folder / "cdi")
    instance = await node.started("boot-2")
    assert {claim.state for claim in instance.store.claims.values()} == {"started"}
    assert node.recorded == {"u2", "u3"}
    assert not (node.folder / "cdi").exists()
    await instance.prepare(dying.claim("u2"))
    assert node.cdi == {"u2"}


# --- rollback ---


async def test_a_rollback_finds_what_this_version_prepared_and_nothing_that_it_unprepared(node):
    node.left("rollout")
    instance = await node.started()
    await instance.unprepare(dying.claim("u3"))
    await instance.prepare(dying.claim("u1"))
    content = node.content()
    assert content["bootID"] == "boot-1"
    assert content["claims"].keys() == {"u1", "u2"}
    (device,) = content["claims"]["u1"]["devices"]
    assert (device["pool"], device["device"], device["serial"]) == ("p", "d1", "SN1")
    assert device["cdiID"] == "drawbar.dev/device=u1-d1"
    for uid in ("u1", "u2"):
        await instance.unprepare(dying.claim(uid))
    assert node.content() == {"bootID": "boot-1", "claims": {}}


async def test_a_claim_is_not_answered_before_the_version_before_would_find_it(node):
    instance = await node.started()
    (node.folder / ".checkpoint.json.tmp").mkdir()
    node.file.unlink()
    with pytest.raises(errors.CheckpointError, match="with room on it"):
        await instance.prepare(dying.claim("u1"))
    assert not list(node.folder.glob("cdi/*.json"))
    (node.folder / ".checkpoint.json.tmp").rmdir()
    await instance.prepare(dying.claim("u1"))
    assert node.content()["claims"].keys() == {"u1"}


# --- a second rollout ---


async def test_a_second_rollout_resurrects_no_claim_that_ended_and_loses_none_that_was_prepared(node):
    node.left("second-rollout")
    assert node.recorded == {"u3"}, "the version before leaves it as it was"
    instance = await node.started()
    assert (instance.holder("p", "d1"), instance.holder("p", "d2")) == ("u1", None)
    assert node.recorded == node.cdi == {"u1"}
    assert node.content()["claims"].keys() == {"u1"}


async def test_a_second_rollout_after_a_rollback_that_wrote_nothing_keeps_the_record_files(node):
    instance = await node.started()
    await instance.prepare(dying.claim("u1"))
    await node.started()
    before = node.file.read_bytes()
    instance = await node.started()
    assert node.file.read_bytes() == before
    assert instance.holder("p", "d1") == "u1"


async def test_without_a_file_that_says_which_record_is_newer_the_cdi_files_decide(node):
    """The version before ran after a rollback, and its file is lost: `u3` has ended, and `u1` was prepared."""
    node.left("second-rollout")
    node.file.write_bytes(b"{")
    instance = await node.started()
    assert instance.store.claims["u3"].state == "started", "it goes once its claim is gone"
    assert instance.store.claims["u1"].state == "completed"
    assert node.cdi == {"u1"}
    (aside,) = node.folder.glob("checkpoint.json.corrupt-*")
    assert aside.read_bytes() == b"{"


# --- both at once ---


@pytest.mark.parametrize("replaces", [False, True], ids=["a line is added", "a new file"])
async def test_while_both_run_each_sees_what_the_other_writes(node, replaces):
    instance = await node.started()
    await instance.prepare(dying.claim("u1"))
    assert node.content()["claims"].keys() == {"u1"}
    node.before_writes(lambda claims: claims.update(u2=entry("u2", "d2")), replaces=replaces)
    assert instance.holder("p", "d2") == "u2"
    node.before_writes(lambda claims: claims.pop("u1"))
    assert instance.holder("p", "d1") is None
    await instance.prepare(dying.claim("u3"))
    assert node.recorded == node.content()["claims"].keys() == {"u2", "u3"}
    node.before_writes(lambda claims: claims.clear(), replaces=replaces)
    await instance.unprepare(dying.claim("u3"))
    assert node.recorded == node.content()["claims"].keys() == set()


# --- crashes ---


async def test_after_a_crash_between_the_record_and_the_file_of_the_version_before_the_record_counts(node):
    instance = await node.started()
    await instance.prepare(dying.claim("u1"))
    before = node.file.read_bytes()
    await instance.unprepare(dying.claim("u1"))
    await instance.prepare(dying.claim("u2"))
    node.file.write_bytes(before)
    instance = await node.started()
    assert (instance.holder("p", "d1"), instance.holder("p", "d2")) == (None, "u2")
    assert node.content()["claims"].keys() == {"u2"}


@pytest.mark.parametrize("length", [1, 40, -2])
async def test_a_line_that_a_crash_cut_short_is_none(node, length):
    node.left("rollout")
    instance = await node.started()
    await instance.unprepare(dying.claim("u3"))
    raw = node.file.read_bytes()
    last = raw.rstrip(b"\n").rfind(b"\n") + 1
    node.file.write_bytes(raw[:length] if length < 0 else raw[: last + length])
    instance = await node.started()
    assert node.recorded == {"u2"}
    await instance.prepare(dying.claim("u1"))
    assert node.content()["claims"].keys() == {"u1", "u2"}


# --- the file ---


def test_what_was_written_is_read_and_the_file_stays_small(tmp_path):
    file = tmp_path / "checkpoint.json"
    line = None
    for number in range(3000):
        claims = {} if number % 2 else {"u": CLAIM}
        line = checkpointlog.write(file, claims, line)
        if number % 100 == 0:
            assert checkpointlog.read(file, line) is line
            assert checkpointlog.read(file).claims == claims
    assert file.stat().st_size <= checkpointlog.ROOM_BYTES


def test_what_says_the_same_is_not_written_again(tmp_path):
    file = tmp_path / "checkpoint.json"
    line = checkpointlog.write(file, {"u": CLAIM}, None)
    assert checkpointlog.write(file, {"u": CLAIM}, line) is line


def test_no_file_is_no_line(tmp_path):
    assert checkpointlog.read(tmp_path / "none.json") is None


def before_wrote(file, data, **more):
    """Write a file of a version that does not mark its lines."""
    text = json.dumps(data)
    raw = {"version": 1, "crc32": zlib.crc32(text.encode()), "data": text, **more}
    file.write_text(json.dumps(raw))


def test_what_a_newer_drawbar_wrote_besides_survives(tmp_path):
    file = tmp_path / "checkpoint.json"
    claim = {**entry("u", "d"), "priority": 7}
    claim["devices"][0]["partition"] = {"unknown": 1}
    before_wrote(file, {"bootID": "b", "future": {"deep": [1, None]}, "claims": {"u": claim}}, signature="x")
    line = checkpointlog.read(file)
    checkpointlog.write(file, dict(line.claims), line)
    document = json.loads(json.loads(file.read_text())["data"])
    assert document["future"] == {"deep": [1, None]}
    assert document["claims"]["u"]["priority"] == 7
    assert document["claims"]["u"]["devices"][0]["partition"] == {"unknown": 1}


def test_claims_of_the_first_version_without_states_are_completed(tmp_path):
    file = tmp_path / "checkpoint.json"
    claim = entry("u", "d")
    del claim["state"]
    before_wrote(file, {"bootID": "b", "claims": {"u": {**claim, "name": "c"}}})
    assert checkpointlog.read(file).claims == {"u": CLAIM}


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
    before_wrote(file, lack)
    with pytest.raises(errors.CorruptCheckpoint):
        checkpointlog.read(file)


def test_an_unreadable_file_is_said_with_the_remedy(tmp_path):
    with pytest.raises(errors.CheckpointError, match="cannot read the checkpoint"):
        checkpointlog.read(tmp_path)
