"""The boxes of the page at four widths: nothing overlaps, and no key text is cut."""

import contextlib
import itertools

import msgspec
import pytest
from tests.scenes import pages

from drawbar.driver.cli.status import tree
from drawbar.driver.cli.ui import following, model, server
from drawbar.mocks.testing import browser

pytestmark = pytest.mark.tool("chromium")

WIDTHS = [390, 800, 1440, 2200]
HEIGHT = 900
# Pixels that rounding may take.
SLACK = 1
KEY_TEXTS = {
    "#/": ".tile .title, .tile .number, .models a, .map-title .big, .chip, .host h3 a, .enclosure h3 > :first-child, .cell span, .action, nav a, .brand",
    "#/devices": "header button, [role=columnheader] button, [role=gridcell].device a, [role=gridcell].state span, .tabs a, nav a",
    "#/claim/team-a/train-0-devices": "h1, .chip, dt, nav a",
    "#/device/rack-1%2Fchassis-1/gpu-6": "h1, .chip, dt, nav a",
    "#/fabric/rack-1": "h1, .chip, dt, .meters a, .meters span, nav a",
    "#/node/worker-03": "h1, .chip, dt, nav a",
    "#/pod/team-a/train-31": "h1, .chip, dt, nav a",
}
CUT = """[...document.querySelectorAll(%r)].filter((each) => each.getClientRects().length).filter((each) => {
    const own = each.getBoundingClientRect();
    for (let box = each; box && box !== document.body; box = box.parentElement) {
        const style = getComputedStyle(box), outer = box.getBoundingClientRect();
        if (style.overflowX === 'visible') continue;
        // What scrolls sideways is cut as well; downwards is no cut.
        if (box.scrollWidth > box.clientWidth + %d && box.clientWidth) return true;
        if (own.left < outer.left - %d || own.right > outer.right + %d) return true;
    }
    return own.right > innerWidth + %d;
}).map((each) => each.textContent)"""
OVERLAPPING = """(() => {
    const boxes = [...document.querySelectorAll(%r)].filter((each) => each.getClientRects().length)
        .map((each) => [each, each.getBoundingClientRect()]);
    const found = [];
    for (const [one, a] of boxes) for (const [other, b] of boxes)
        if (one !== other && !one.contains(other) && !other.contains(one)
            && Math.min(a.right, b.right) - Math.max(a.left, b.left) > %d && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > %d)
            found.push([one.textContent.slice(0, 40), other.textContent.slice(0, 40)]);
    return found;
})()"""
BLOCKS = "header > *, .card, .host, .enclosure, .cell, .row, .tile > *, h1, h2, .banner, .tabs a, .columns > div > *, dt, dd, .bar > *, [role=columnheader], .port, .legend span"
SIDEWAYS = "document.documentElement.scrollWidth > innerWidth || document.getElementById('main').scrollWidth > document.getElementById('main').clientWidth"


NEWS = "document.querySelectorAll('.cell').length"


@contextlib.asynccontextmanager
async def opening(page, *, width):
    """Yield a tab that shows the page, and what is shown."""
    latest = following.Latest()
    latest.publish(page)
    with server.listening() as bound:
        async with (
            server.serving(latest, bound) as url,
            browser.opening(url, width=width, height=HEIGHT) as tab,
        ):
            await tab.until("document.getElementById('cluster').textContent === 'prod-eu-1'")
            yield tab, latest


async def check(tab, route):
    await tab.until("document.querySelector('main > :not([hidden])').textContent.length > 20")
    cut = await tab.evaluate(CUT % (KEY_TEXTS[route], SLACK, SLACK, SLACK, SLACK))
    assert (route, cut) == (route, [])
    assert (route, await tab.evaluate(OVERLAPPING % (BLOCKS, SLACK, SLACK))) == (route, [])
    assert not await tab.evaluate(SIDEWAYS)


@pytest.mark.parametrize("width", WIDTHS)
async def test_nothing_overlaps_and_no_key_text_is_cut(width):
    async with opening(pages.make_broken_page(), width=width) as (tab, _):
        await tab.until(f"{NEWS} > 20")
        heights = "[...document.querySelectorAll('#overview .card')].map((each) => each.getBoundingClientRect().height)"
        assert min(await tab.evaluate(heights)) > 40
        for route in KEY_TEXTS:
            await tab.evaluate(f"location.hash = {route!r}")
            await tab.until(f"location.hash === {route!r}")
            await check(tab, route)
        assert tab.complaints == []


REASONS = """[...document.querySelectorAll('#rows [role=gridcell].why')].filter((each) => each.textContent
    && each.getClientRects().length && each.scrollHeight <= each.clientHeight + 1).map((each) => each.textContent)"""


@pytest.mark.parametrize("width", WIDTHS)
async def test_the_table_has_the_reason_of_each_device(width):
    page = pages.make_broken_page()
    async with opening(page, width=width) as (tab, _):
        await tab.evaluate("location.hash = '#/devices?q=gpu'")
        await tab.until("document.querySelectorAll('#rows .device').length > 7")
        reasons = "\n".join(await tab.evaluate(REASONS))
        troubled = [row.device for row in page.rows.values() if row.device.name.startswith("gpu-")]
        told = [device.waits_for or device.health_message for device in troubled]
        assert len([each for each in told if each]) > 3
        for reason in told:
            assert reason in reasons
        # Rows follow each other, whatever their height.
        edges = await tab.evaluate(
            "[...document.querySelectorAll('#rows > [role=row]')].map((each) => each.getBoundingClientRect()).map((each) => [each.top, each.bottom])"
        )
        for (_, bottom), (top, _) in itertools.pairwise(edges):
            assert abs(bottom - top) <= SLACK


@pytest.mark.parametrize("width", WIDTHS)
async def test_a_healthy_an_empty_and_a_large_cluster_fit(width):
    async with opening(pages.make_healthy_page(), width=width) as (tab, latest):
        await tab.until(
            "document.querySelector('#attention').textContent.includes('Nothing needs attention')"
        )
        await check(tab, "#/")
        latest.publish(pages.make_empty_page())
        await tab.until("document.querySelector('#map').textContent.includes('No fabrics')")
        await check(tab, "#/")
        latest.publish(pages.make_large_page())
        await tab.until(f"{NEWS} > 1000")
        # Only part of a large cluster is in the document, with all that failed.
        assert await tab.evaluate("document.querySelectorAll('*').length") < 4000
        assert await tab.evaluate("document.querySelectorAll('.enclosure .cell.failed').length") == 15
        await check(tab, "#/")


def make_mixed_page():
    """Return a page with enclosures of many classes, and a taint with a long text."""
    clock, rows = pages.Clock(), []
    taint = tree.Taint(key="drawbar.dev/administrator", value="psu2", effect="NoSchedule")
    for enclosure, names in (
        ("chassis-1", ("cxl-memory-1", "fpga-1", "gpu-1", "nic-1", "nvme-1")),
        ("chassis-of-row-2", ("accelerator-1", "cxl-memory-2", "fpga-2", "gpu-2", "nvme-2")),
    ):
        for name in names:
            fields = {"taints": (taint,)} if name == "gpu-2" else {}
            device_class = name.rpartition("-")[0]
            rows.append(pages.row(clock, len(rows), enclosure, device_class, "M", name, **fields))
    return msgspec.structs.replace(pages.make_healthy_page(), rows={row.key: row for row in rows})


BROKEN_WORDS = """[...document.querySelectorAll('.why')].flatMap((each) => [...each.childNodes]).filter((node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return node.nodeType === Node.TEXT_NODE && !node.data.includes(' ') && range.getClientRects().length > 1;
}).map((node) => node.data)"""


@pytest.mark.parametrize("width", WIDTHS)
async def test_names_beside_a_list_of_classes_and_words_of_taints_are_whole(width):
    async with opening(make_mixed_page(), width=width) as (tab, _):
        await tab.until(f"{NEWS} > 10")
        await check(tab, "#/")
        assert await tab.evaluate(BROKEN_WORDS) == []
        assert await tab.evaluate(f"{LINKS}.at(-1)") == "#/device/rack-1%2Fchassis-of-row-2/gpu-2?explain"


LINKS = "[...document.querySelectorAll('#attention .action')].map((each) => each.getAttribute('href'))"


async def test_each_kind_of_trouble_offers_its_explanation():
    async with opening(pages.make_broken_page(), width=1440) as (tab, _):
        kinds = await tab.until(f"new Set({LINKS}.map((each) => each.split('/')[1])).size && {LINKS}")
        assert {link.split("/")[1] for link in kinds} == {"claim", "device", "fabric"}
        # Only missing rights and rests of long lists have none.
        entries = "[...document.querySelectorAll('#attention .row:not(:has(.action))')].map((each) => each.textContent)"
        assert all("not readable" in text for text in await tab.evaluate(entries))


CONNECTION = "document.getElementById('connection').textContent"
BANNER = "document.getElementById('lost')"


async def test_the_page_is_live_only_while_everything_is_read():
    page = pages.make_healthy_page()
    since = "2026-01-02T03:04:05Z"
    async with opening(page, width=390) as (tab, latest):
        await tab.until(f"{CONNECTION} === 'live' && {BANNER}.hidden")
        latest.publish(msgspec.structs.replace(page, unread=("pods cannot be read: 403",)))
        await tab.until(f"{CONNECTION} === 'incomplete' && {BANNER}.hidden")
        for kinds, told in (
            ((), "The API server cannot be read"),
            (("fabrics", "pods"), "fabrics, pods cannot"),
        ):
            stale = model.Stale(kinds=kinds, since=since)
            latest.publish(msgspec.structs.replace(page, unread=("pods cannot be read: gone",), stale=stale))
            banner = await tab.until(
                f"{CONNECTION} === 'out of date' && {BANNER}.innerText.startsWith({told!r}) && {BANNER}.innerText"
            )
            assert "2026" in banner
            await check(tab, "#/")
        latest.publish(page)
        await tab.until(f"{CONNECTION} === 'live' && {BANNER}.hidden")


async def test_after_drawbar_ui_ended_no_fabric_is_shown_as_good():
    async with contextlib.AsyncExitStack() as stack:
        latest = following.Latest()
        latest.publish(pages.make_healthy_page())
        bound = stack.enter_context(server.listening())
        serving = server.serving(latest, bound)
        url = await serving.__aenter__()
        tab = await stack.enter_async_context(browser.opening(url))
        await tab.until("document.querySelector('#map-head .chip.good')")
        await serving.__aexit__(None, None, None)
        await tab.until(f"{CONNECTION} === 'not connected' && !{BANNER}.hidden")
        chip = await tab.evaluate("document.querySelector('#map-head .chip').textContent")
        assert chip.endswith("was Connected")
        assert await tab.evaluate("document.querySelectorAll('.good').length") == 0


async def test_the_sentence_of_a_lost_manager_ends_before_the_next():
    page = pages.make_healthy_page()
    lost = msgspec.structs.replace(
        page.fabrics[0], state="Unreachable", message="the manager may be overloaded"
    )
    async with opening(msgspec.structs.replace(page, fabrics=(lost,)), width=1440) as (tab, _):
        banner = await tab.until("document.querySelector('#map-head .banner')?.textContent")
        assert "the manager may be overloaded. Attached devices keep working" in banner


async def test_lines_lead_from_each_port_to_its_slot():
    page = pages.make_broken_page()
    async with opening(page, width=1440) as (tab, _):
        lines = await tab.until(
            "document.querySelectorAll('.lines .line').length && [...document.querySelectorAll('.lines .line')].map((each) => each.dataset.key)"
        )
        assert sorted(lines) == sorted(key for key, row in page.rows.items() if row.device.host)


async def test_narrow_screens_have_no_lines():
    async with opening(pages.make_broken_page(), width=390) as (tab, _):
        await tab.until(f"{NEWS} > 20")
        assert await tab.evaluate("document.querySelectorAll('.lines .line').length") == 0
