"""What stands on the screen of `drawbar top`, and what each key does."""

import datetime
import io

import pytest
from rich import console

from drawbar.driver.api import meta
from drawbar.driver.cli.status import observed, tree
from drawbar.driver.cli.top import screen, terminal

NOW = datetime.datetime(2026, 1, 1, 3, tzinfo=datetime.UTC)
CLAIM = tree.Claim(
    namespace="team", name="train", state="Reserved", since="", node="n1", pods=("train-0",), waits_for=""
)


def device(name, state="Free", **fields):
    return tree.Device(pool="rack/enc", name=name, state=state, **fields)


def shown(*devices, unread=()):
    fabric = tree.Fabric(
        name="rack",
        state="Connected",
        since="2026-01-01T00:00:00Z",
        message="",
        enclosures=(tree.Enclosure(name="enc", devices=devices),),
    )
    return tree.Tree(fabrics=(fabric,), local=(), claims=(), unread=unread)


THREE = shown(
    device("free"),
    device("ready", "Ready", claims=(CLAIM,), node="n1", host="h1", port="p3", attachment="rack.ready"),
    device("late", "Pending", since="2026-01-01T01:00:00Z", waits_for="the fabric manager"),
)
EVENTS = (
    observed.Event(
        metadata=meta.ObjectMeta(name="e"),
        type="Warning",
        reason="AttachFailed",
        note="no such port",
        event_time="2026-01-01T02:59:00Z",
        regarding=observed.Regarding(kind="DeviceAttachment", name="rack.ready"),
    ),
    observed.Event(
        metadata=meta.ObjectMeta(name="f"),
        type="Normal",
        reason="Other",
        note="elsewhere",
        regarding=observed.Regarding(kind="ResourceClaim", name="x", namespace="y"),
    ),
)


def drawn(state=screen.State(), content=THREE, width=140, height=30):  # noqa: B008 - a value without a state
    listed = screen.rows(content, state.filter)
    out = console.Console(file=io.StringIO(), width=width, height=height, highlight=False)
    out.print(screen.render(state, content, listed, EVENTS, now=NOW, width=width, height=height))
    return out.file.getvalue()


def names(words=""):
    return [row.device.name for row in screen.rows(THREE, words)]


def pressed(*keys, state=screen.State(), content=THREE):  # noqa: B008 - a value without a state
    for key in keys:
        state = screen.press(state, key, screen.rows(content, state.filter), page=2)
    return state


def test_what_waits_is_first_and_what_is_free_is_last():
    assert names() == ["late", "ready", "free"]


def test_what_has_waited_longest_is_first():
    both = shown(
        device("new", "Pending", since="2026-01-01T02:00:00Z"),
        device("old", "Pending", since="2026-01-01T01:00:00Z"),
    )
    assert [row.device.name for row in screen.rows(both, "")] == ["old", "new"]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("team/train", ["ready"]),
        ("RACK pend", ["late"]),
        ("p3", ["ready"]),
        ("train-0", ["ready"]),
        ("none", []),
    ],
)
def test_the_filter_wants_all_words_anywhere_in_the_row(words, left):
    assert names(words) == left


def test_the_screen_has_fabrics_devices_what_they_wait_for_and_events():
    printed = drawn()
    for content in (
        "rack",
        ["Connected", "3h"][0],
        "late",
        "the fabric manager",
        "team/train",
        "AttachFailed",
    ):
        assert content in printed
    assert "3 of 3 devices" in printed


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("height", [8, 24])
def test_no_line_is_wider_and_the_screen_no_higher_than_the_terminal(width, height):
    many = shown(*(device(f"device-{number}" * 5, "Pending", waits_for="x" * 300) for number in range(50)))
    for state in (screen.State(), screen.State(is_open=True)):
        lines = drawn(state, many, width, height).splitlines()
        assert max(map(len, lines)) <= width
        assert len(lines) <= max(height, 6 + screen.EVENTS)


def test_a_control_character_of_a_name_is_not_sent_to_the_terminal():
    assert "\x1b" not in drawn(content=shown(device("evil\x1b[2J", "Pending", waits_for="\x07")))


def test_the_cursor_moves_within_the_list_and_follows_its_device():
    assert pressed(screen.DOWN).chosen == ("rack/enc", "ready")
    assert pressed(screen.UP).chosen == ("rack/enc", "late")
    assert pressed(screen.END, screen.DOWN).chosen == ("rack/enc", "free")
    assert pressed(screen.PAGE_DOWN).chosen == ("rack/enc", "free")
    assert pressed(screen.END, screen.HOME, "j", "k").chosen == ("rack/enc", "late")
    # "late" is gone: the cursor stays on its device, at another place.
    state = pressed(screen.DOWN)
    assert screen.position(state, screen.rows(THREE, "ready")) == 0


def test_enter_opens_the_device_with_its_claim_pod_port_and_own_events():
    printed = drawn(pressed(screen.DOWN, screen.ENTER))
    for content in ("team/train", "team/train-0", "h1 port p3", "rack.ready", "no such port"):
        assert content in printed
    assert "elsewhere" not in printed
    assert not pressed(screen.DOWN, screen.ENTER, screen.ESCAPE).is_open


def test_letters_go_into_the_filter_until_enter():
    state = pressed("/", "q", "x", screen.BACKSPACE)
    assert (state.filter, state.is_typing, state.is_done) == ("q", True, False)
    assert pressed(screen.ENTER, "q", state=state).is_done
    assert pressed(screen.ESCAPE, state=state).filter == ""
    assert len(pressed("/", *"x" * 200).filter) == screen.FILTER_LIMIT


def test_nothing_to_choose_from_is_no_error():
    empty = shown()
    assert pressed(screen.DOWN, screen.ENTER, content=empty) == screen.State()
    assert "0 of 0 devices" in drawn(content=empty)


def test_kinds_that_cannot_be_read_are_counted_in_the_last_line():
    assert "1 kinds cannot be read" in drawn(content=shown(unread=("pods",)), width=200)


@pytest.mark.parametrize(
    ("raw", "keys"),
    [
        (b"\x1b[A\x1b[B", (screen.UP, screen.DOWN)),
        (b"\x1b", (screen.ESCAPE,)),
        (b"/ab\r", ("/", "a", "b", screen.ENTER)),
        (b"\x1b[15~q", ("q",)),
        (b"\x1b[200~", ()),
        ("é".encode(), ("é",)),
        (b"\xff\x00\x7f", (screen.BACKSPACE,)),
        (b"\x1bOF", (screen.END,)),
        (b"\x1b[1;5", ()),
    ],
)
def test_bytes_of_a_terminal_become_keys(raw, keys):
    assert terminal.decode(raw) == keys
