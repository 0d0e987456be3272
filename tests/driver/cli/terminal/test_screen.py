"""The lines of the live terminal view, and the effect of each key."""

import datetime
import io
import itertools
import re

import msgspec
import pytest
from rich import console
from tests.scenes import pages

from drawbar.driver.cli.status import claim_entries, tree
from drawbar.driver.cli.terminal import keys, screen
from drawbar.driver.cli.ui import device_rows, model

BROKEN = pages.make_broken_page()


def draw_screen(state=screen.State(), page=BROKEN, width=140, height=40):  # noqa: B008 - a value without a state
    lines = screen.arrange(page, state)
    out = console.Console(file=io.StringIO(), width=width, height=height, highlight=False)
    now = datetime.datetime.now(datetime.UTC)
    out.print(screen.render(state, page, lines, now=now, width=width, height=height))
    return out.file.getvalue()


def rows(page, **choices):
    lines = screen.arrange(page, screen.State(**choices))
    return [line for line in lines if isinstance(line, device_rows.Row)]


def names(**choices):
    return [row.device.name for row in rows(BROKEN, **choices)]


def press_keys(*pressed_keys, state=screen.State(), page=BROKEN):  # noqa: B008 - a value without a state
    for key in pressed_keys:
        state = screen.press(state, key, screen.arrange(page, state), page_rows=2)
    return state


def page_of(*devices):
    listed = [
        device_rows.describe_row(
            tree.Device(pool="p", name=name, **fields), fabric=f"rack-{rack}", enclosure=enclosure
        )
        for rack, enclosure, name, fields in devices
    ]
    return model.Page(rows={f"{number} {row.key}": row for number, row in enumerate(listed)})


def test_places_and_devices_are_in_natural_order_and_nodes_are_last():
    page = page_of(
        (1, "chassis-10", "gpu-1", {}),
        (1, "chassis-2", "gpu-10", {}),
        (1, "chassis-2", "gpu-9", {}),
        (10, "a", "x", {}),
        (2, "a", "y", {}),
    )
    titles = [line.title for line in screen.arrange(page, screen.State()) if isinstance(line, screen.Group)]
    assert titles == ["rack-1 / chassis-2", "rack-1 / chassis-10", "rack-2 / a", "rack-10 / a"]
    assert [row.device.name for row in rows(page)] == ["gpu-9", "gpu-10", "gpu-1", "y", "x"]
    assert [line.title for line in screen.arrange(BROKEN, screen.State()) if isinstance(line, screen.Group)][
        -1
    ] == "node worker-02"


def test_the_screen_sums_up_and_names_bad_fabrics_pending_claims_and_each_event_once():
    printed = draw_screen(width=200)
    for content in (
        "32 devices  1 failed  1 tainted  2 claims waiting  4 moving  10 in use  16 free",
        "Degraded",
        "host host-6 is avoided",
        "Unreachable",
        "team-a/train-31-devices",
        "6 cannot allocate all claims",
        claim_entries.UNTRIED,
        "drawbar.dev/maintenance:NoSchedule",
    ):
        assert content in printed
    assert printed.count("FabricError") == 1


def test_a_failed_device_does_not_wait():
    (line,) = [line for line in draw_screen(width=200).splitlines() if "gpu-6 " in line and "Failed" in line]
    assert pages.LINK in line
    assert "waits for" not in line


def test_bad_fabrics_are_first_and_never_green():
    mixed = model.Page(fabrics=(pages.make_healthy_page().fabrics[0], *BROKEN.fabrics))
    states = [line.split()[2] for line in draw_screen(page=mixed).splitlines() if line.startswith("fabric ")]
    assert states == ["Degraded", "Unreachable", "Connected"]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("team-a/train-12", ["nvme-5"]),
        ("RACK pend", ["gpu-4"]),
        ("u55c ready", ["fpga-1"]),
        ("train-0-", ["gpu-1"]),
        ("none", []),
    ],
)
def test_the_filter_wants_all_words_anywhere_in_the_row(words, left):
    assert names(filter=words) == left


def test_states_can_be_picked_one_after_the_other():
    assert names(show=screen.TROUBLE) == ["gpu-2", "gpu-6", "gpu-4", "gpu-5", "gpu-7", "nvme-7", "cxl-3"]
    assert "gpu-7" in names(show=screen.UNUSED)
    states = itertools.accumulate(
        range(4), lambda state, _: press_keys("s", state=state), initial=screen.State()
    )
    assert [state.show for state in states] == [*screen.SHOWN, screen.ALL]


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("height", [8, 24, 60])
@pytest.mark.parametrize(
    "page", [BROKEN, pages.make_healthy_page(), pages.make_empty_page(), pages.make_large_page(300, 20)]
)
def test_the_screen_is_as_large_as_the_terminal_and_its_last_line_has_the_keys(width, height, page):
    for state in (screen.State(), screen.State(is_open=True), screen.State(is_typing=True)):
        lines = draw_screen(state, page, width, height).splitlines()
        assert max(map(len, lines)) <= width
        assert len(lines) == height
        assert ("/_" if state.is_typing else f"of {len(page.rows)}") in lines[-1]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_devices_and_states_are_never_cut(width):
    printed = draw_screen(width=width, height=60)
    for row in BROKEN.rows.values():
        assert f"{row.device.name} " in printed
        assert re.search(rf"{row.device.state}(, tainted|, ill)? ", printed)


def test_a_control_character_of_a_name_is_not_sent_to_the_terminal():
    page = page_of((1, "\x1b[2J", "evil\x1b[2J", {"state": "Pending", "waits_for": "\x07"}))
    assert "\x1b" not in draw_screen(page=page)


def test_the_cursor_moves_within_the_list_and_stays_on_its_device():
    listed = [row.key for row in rows(BROKEN)]
    assert press_keys(screen.DOWN).chosen == listed[1]
    assert press_keys(screen.UP).chosen == listed[0]
    assert press_keys(screen.END, screen.DOWN).chosen == listed[-1]
    assert press_keys(screen.PAGE_DOWN, "j", "k").chosen == listed[2]
    assert press_keys(screen.END, screen.HOME).chosen == listed[0]
    state = press_keys(screen.DOWN)
    filtered = screen.arrange(BROKEN, msgspec.structs.replace(state, filter="gpu-6"))
    assert filtered[screen.find_position(state, filtered)].key == listed[1]


def test_enter_opens_the_device_with_its_claim_port_and_own_events():
    state = press_keys("/", *"gpu-6", screen.ENTER, screen.ENTER)
    printed = draw_screen(state)
    for content in (
        "team-a/train-5-devices",
        "team-a/train-5",
        "host-1 port p2",
        "rack-1.gpu-6",
        "FabricError",
        "drawbar explain device/rack-1/chassis-1/gpu-6",
    ):
        assert content in printed
    assert "DevicesReady" not in printed
    assert not press_keys(screen.ESCAPE, state=state).is_open


def test_letters_go_into_the_filter_until_enter():
    state = press_keys("/", "q", "x", screen.BACKSPACE)
    assert (state.filter, state.is_typing, state.is_done) == ("q", True, False)
    assert press_keys(screen.ENTER, "q", state=state).is_done
    assert press_keys(screen.ESCAPE, state=state).filter == ""
    assert len(press_keys("/", *"x" * 200).filter) == screen.FILTER_LIMIT


def test_a_list_without_devices_has_no_cursor():
    empty = pages.make_empty_page()
    assert press_keys(screen.DOWN, screen.ENTER, page=empty) == screen.State()
    assert "no device to show" in draw_screen(page=empty)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_missing_rights_failures_and_waiting_claims_are_named_at_each_width(width):
    summary, unread = draw_screen(width=width).splitlines()[:2]
    assert "1 failed" in summary
    assert "! devicetaintrules cannot be read" in unread


def test_an_old_state_tells_its_age():
    since = pages.Clock().format_ago(240)
    for kinds, told in (((), "everything"), (("fabrics", "pods"), "fabrics, pods")):
        page = msgspec.structs.replace(BROKEN, stale=model.Stale(kinds=kinds, since=since))
        assert f"! {told} was last read 4m ago" in draw_screen(page=page)


def test_a_failed_device_of_a_large_cluster_is_on_the_first_screen():
    page = pages.make_large_page(15000)
    assert "Failed" in draw_screen(page=page)
    assert [row.device.state for row in rows(page)][:1] == ["Failed"]


def test_a_tainted_or_ill_device_does_not_look_well():
    printed = draw_screen(width=40, height=60)
    assert re.search(r"gpu-7 +Free, tainted", printed)
    assert re.search(r"gpu-2 +Ready, ill", printed)


def test_a_large_cluster_is_arranged_once_for_a_page_and_a_filter():
    page, state = pages.make_healthy_page(), screen.State()
    assert screen.lists_same((page, state), (page, press_keys(screen.DOWN)))
    assert not screen.lists_same((page, state), (page, press_keys("s")))
    assert not screen.lists_same((page, state), (pages.make_healthy_page(), state))


@pytest.mark.parametrize(
    ("raw", "names_of_keys"),
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
def test_bytes_of_a_terminal_become_keys(raw, names_of_keys):
    assert keys.decode(raw) == names_of_keys
