"""Changes of the record are made one after the other, and to their end."""

import asyncio
import dataclasses
import threading

import pytest

from drawbar.cdi import spec
from drawbar.driver.catalogue import reasons
from drawbar.driver.node import errors
from drawbar.driver.node.preparation import cdifiles, records, restoring, sharedfiles, store


def claim(uid, device):
    prepared = records.PreparedDevice(pool="p", device=device, cdi_id=f"drawbar.dev/device={uid}-{device}")
    return records.PreparedClaim(
        namespace="ns", name=uid, uid=uid, state=records.STARTED, boot_id="b", devices=(prepared,)
    )


def content(uid, env="A=b"):
    device = spec.Device(name=f"{uid}-d", edits=spec.ContainerEdits(env=(env,)))
    return spec.Spec(kind="drawbar.dev/device", devices=(device,))


@dataclasses.dataclass
class Writes:
    """Holds the store's writes up at the sync of the directory."""

    begun: threading.Event = dataclasses.field(default_factory=threading.Event)
    go_on: threading.Event = dataclasses.field(default_factory=threading.Event)

    def sync(self, folder):
        self.begun.set()
        assert self.go_on.wait(120), "the test has not let the write go on"


@pytest.fixture
async def shared_store(tmp_path):
    made = store.Store(cdifiles.CdiFiles(tmp_path / "cdi", "drawbar.dev"), tmp_path / "plugin")
    await made.restore(lambda stored: restoring.Restored(claims=stored.claims, specs={}))
    # So that the directory of the records exists.
    await made.start(claim("first", "other"), content("first"))
    return made


@pytest.fixture
def writes(shared_store, monkeypatch):
    held = Writes()
    monkeypatch.setattr(sharedfiles, "sync_directory", held.sync)
    yield held
    held.go_on.set()


async def _while_one_writes(shared_store, writes, *calls):
    """Make the calls while another write is held up; return what they returned or raised."""

    async def outcome(call):
        try:
            return await call
        except errors.NodeError as error:
            return error

    async with asyncio.TaskGroup() as group:
        group.create_task(shared_store.start(claim("one", "d1"), content("one")))
        assert await asyncio.to_thread(writes.begun.wait, 20)
        waiting = [group.create_task(outcome(call)) for call in calls]
        await asyncio.sleep(0)
        writes.go_on.set()
    return [task.result() for task in waiting]


async def test_a_device_wanted_by_two_goes_to_the_first(shared_store, writes, tmp_path):
    outcomes = await _while_one_writes(
        shared_store,
        writes,
        shared_store.start(claim("a", "same"), content("a")),
        shared_store.start(claim("b", "same"), content("b")),
        shared_store.start(claim("c", "else"), content("c")),
    )
    assert outcomes[0] is None
    assert isinstance(outcomes[1], errors.PrepareError)
    assert outcomes[1].reason == reasons.DEVICE_IN_USE
    assert outcomes[2] is None
    assert shared_store.claims.keys() == {"first", "one", "a", "c"}
    assert not (tmp_path / "cdi" / "drawbar.dev-b.json").exists()


async def test_a_cdi_file_that_cannot_be_written_fails_its_claim_alone(shared_store, writes, tmp_path):
    outcomes = await _while_one_writes(
        shared_store,
        writes,
        shared_store.start(claim("bad", "x"), content("bad", env="A=\udcff")),
        shared_store.start(claim("good", "y"), content("good")),
    )
    assert isinstance(outcomes[0], errors.PrepareError)
    assert outcomes[0].reason == reasons.CDI_FILE_FAILED
    assert outcomes[1] is None
    assert (tmp_path / "cdi" / "drawbar.dev-good.json").exists()
    assert "bad" in shared_store.claims


async def test_a_released_device_is_free_for_the_next_change(shared_store, writes, tmp_path):
    outcomes = await _while_one_writes(
        shared_store,
        writes,
        shared_store.drop("first"),
        shared_store.start(claim("next", "other"), content("next")),
    )
    assert outcomes[0].uid == "first"
    assert outcomes[1] is None
    assert shared_store.claims.keys() == {"one", "next"}
    assert not (tmp_path / "cdi" / "drawbar.dev-first.json").exists()


async def test_a_caller_cancelled_in_its_write_ends_once_the_write_has_ended(shared_store, writes):
    async with asyncio.TaskGroup() as group:
        caller = group.create_task(shared_store.start(claim("one", "d1"), content("one")))
        assert await asyncio.to_thread(writes.begun.wait, 20)
        caller.cancel()
        await asyncio.sleep(0)
        assert not caller.done()
        writes.go_on.set()
    assert caller.cancelled()
    assert shared_store.claims.keys() == {"first", "one"}


async def test_a_caller_cancelled_before_its_write_changes_nothing(shared_store, writes):
    async with asyncio.TaskGroup() as group:
        group.create_task(shared_store.start(claim("one", "d1"), content("one")))
        assert await asyncio.to_thread(writes.begun.wait, 20)
        waiting = group.create_task(shared_store.drop("first"))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        writes.go_on.set()
    assert shared_store.claims.keys() == {"first", "one"}


async def test_a_reading_that_began_before_a_change_does_not_undo_it(shared_store, monkeypatch, tmp_path):
    is_read, go_on, scan = threading.Event(), threading.Event(), store.Store._scan

    def scan_slowly(files, *view):
        scanned = scan(files, *view)
        if threading.current_thread().name.startswith("asyncio"):
            is_read.set()
            assert go_on.wait(120)
        return scanned

    monkeypatch.setattr(store.Store, "_scan", scan_slowly)
    # The directory has changed, so the next reading scans it.
    (tmp_path / "plugin" / "claims" / ".other").touch()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(asyncio.to_thread(lambda: shared_store.claims))
        assert await asyncio.to_thread(is_read.wait, 20)
        change = group.create_task(shared_store.start(claim("next", "d1"), content("next")))
        await asyncio.sleep(0)
        go_on.set()
        await change
    assert reading.result().keys() == {"first"}
    assert shared_store.claims.keys() == {"first", "next"}
