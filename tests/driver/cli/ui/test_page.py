"""The page in a browser, on the mock cluster: what it shows is what the cluster has, after each change."""

import asyncio
import json

import pytest

from drawbar.driver.cli.status import reading, tree
from drawbar.driver.kube import client, config, kinds
from drawbar.mocks.testing import browser

pytestmark = pytest.mark.skipif(browser.PROGRAM is None, reason=browser.MISSING)

ROWS = """[...document.querySelectorAll('#rows [aria-level="2"]')].map(
    (line) => [...line.children].map((cell) => cell.textContent))"""


def shows(text, where="#rows"):
    """Return an expression that is true once the page has a text."""
    return f"document.querySelector({where!r}).textContent.includes({text!r})"


async def texts_of(api):
    """Return device, state, class and model, claims and what is waited for of each device, as `drawbar status` has them."""
    built = tree.build(await reading.read(api, reading.Target(), driver="drawbar.dev"))
    return sorted(
        (
            device.name,
            device.state,
            f"{device.device_class} {device.model}".strip(),
            "; ".join(f"{claim.namespace}/{claim.name}: {', '.join(claim.pods)}" for claim in device.claims),
            device.waits_for,
        )
        for device in built.devices
    )


async def texts_of_page(tab):
    rows = await tab.evaluate(ROWS)
    return sorted((row[0], row[1].partition(" ")[0], row[3], row[7], row[8]) for row in rows)


def test_it_shows_the_cluster_and_each_change_of_it(cluster, served):
    async def work(api):
        async with served(api) as (url, _), browser.opened(url) as tab:
            await tab.until(shows("gpu-1"))
            assert await texts_of_page(tab) == await texts_of(api)
            await api.delete(kinds.ATTACHMENT, "rack-1.gpu-1")
            await tab.until(shows("Allocated"))
            assert await texts_of_page(tab) == await texts_of(api)
            await api.delete(kinds.SLICE, "node-1")
            await api.delete(kinds.CLAIM, "local", namespace="default")
            await tab.until("!" + shows("disk-9"))
            assert await texts_of_page(tab) == await texts_of(api)
            assert await tab.evaluate("document.getElementById('claims').innerText.includes('default/next')")
            assert await tab.until(shows("gpu-1 is Allocated", "#news") + "|| true")

    cluster(work)


def test_it_asks_nobody_else_and_breaks_no_rule_of_its_policy(cluster, served):
    async def work(api):
        async with served(api) as (url, _), browser.opened(url) as tab:
            await tab.until(shows("gpu-1"))
            paths = {request.removeprefix(url) for request in tab.requests}
            # The icon is asked for at a time of the browser's own.
            assert paths | {"icon.svg"} == {"", "page.css", "page.js", "icon.svg", "updates"}
            assert tab.complaints == []
            refused = "fetch('https://example.com/').then(() => 'sent', () => 'refused')"
            assert await tab.evaluate(refused) == "refused"

    cluster(work)


def test_foreign_text_stays_text(cluster, served):
    markup = "<img src=x onerror=alert(1)>"

    async def work(api):
        status = {"status": {"error": {"reason": "Refused", "message": markup}, "phase": "Failed"}}
        await api.patch(
            kinds.ATTACHMENT,
            "rack-1.gpu-1",
            status,
            content=client.Patch.MERGE,
            into=dict,
            subresource="status",
        )
        async with served(api) as (url, _), browser.opened(url) as tab:
            await tab.until(shows("Failed"))
            assert await tab.evaluate("document.querySelectorAll('img').length") == 0

    cluster(work)


def test_the_keyboard_reaches_all_of_a_device_and_comes_back(cluster, served):
    async def work(api):
        async with served(api) as (url, _), browser.opened(url) as tab:
            await tab.until(shows("gpu-1"))
            await tab.press("/")
            for letter in "gpu-1":
                await tab.press(letter)
            await tab.until(shows("1 of 3 devices", "#count"))
            await tab.evaluate("document.getElementById('devices').focus()")
            await tab.press("ArrowDown")
            active = "document.getElementById(document.activeElement.getAttribute('aria-activedescendant'))"
            assert "gpu-1" in await tab.evaluate(f"{active}.textContent")
            assert await tab.evaluate(f"{active}.getAttribute('aria-selected')") == "true"
            await tab.press("Enter")
            detail = await tab.until(
                "document.activeElement.id === 'detail' && document.activeElement.innerText"
            )
            for text in ("Device gpu-1", "rack-1", "S1", "host-1", "default/train", "train-0"):
                assert text in detail
            await tab.press("Escape")
            assert await tab.until("document.activeElement.id === 'devices'")
            await tab.press("ArrowUp")
            await tab.press("ArrowLeft")
            await tab.until("!" + shows("gpu-1", "#rows [aria-level='2'], #count"))
            assert await tab.evaluate(f"{active}.getAttribute('aria-expanded')") == "false"

    cluster(work)


def test_a_screen_reader_gets_a_table_with_its_full_size(cluster, served):
    async def work(api):
        async with served(api) as (url, _), browser.opened(url) as tab:
            await tab.until(shows("gpu-1"))
            nodes = await tab.accessibility()
            assert ("treegrid", "Devices") in nodes
            assert ("columnheader", "Waits for") in nodes
            assert ("gridcell", "gpu-2") in nodes
            assert ("gridcell", "drawbar.dev/maintenance:NoSchedule") in nodes
            assert ("searchbox", "Search") in nodes
            assert (
                await tab.evaluate("document.getElementById('devices').getAttribute('aria-rowcount')") == "6"
            )
            indexes = "[...document.querySelectorAll('#rows [role=row]')].map((line) => line.getAttribute('aria-rowindex'))"
            assert await tab.evaluate(indexes) == ["2", "3", "4", "5", "6"]

    cluster(work)


@pytest.mark.parametrize(("is_dark", "paper"), [(False, "rgb(255, 255, 255)"), (True, "rgb(17, 22, 28)")])
def test_it_is_light_or_dark_as_the_user_prefers(cluster, served, is_dark, paper):
    async def work(api):
        async with served(api) as (url, _), browser.opened(url, is_dark=is_dark) as tab:
            assert await tab.evaluate("getComputedStyle(document.body).backgroundColor") == paper

    cluster(work)


def test_hosts_and_what_waits_are_views_of_the_same(cluster, served):
    async def work(api):
        async with served(api) as (url, _), browser.opened(url) as tab:
            await tab.until(shows("gpu-1"))
            await tab.evaluate("document.querySelector('[value=hosts]').click()")
            await tab.until(shows("host host-1, node node-1"))
            await tab.evaluate("document.querySelector('[value=waiting]').click()")
            await tab.until(shows("0 of 3 devices wait", "#count"))
            await api.delete(kinds.ATTACHMENT, "rack-1.gpu-1")
            await tab.until(shows("the controller, to begin the attach"))

    cluster(work)


def test_what_cannot_be_read_is_named(drawbar_apiserver, served):
    async def work():
        async with (
            client.connecting(config.from_kubeconfig(drawbar_apiserver.kubeconfig)) as api,
            served(api) as (url, _),
            browser.opened(url) as tab,
        ):
            await tab.until(shows("install Drawbar's chart", "#unread"))

    asyncio.run(work())


def test_of_many_devices_only_those_in_sight_are_in_the_document(cluster, served):
    """So that 10,000 are shown without a stutter."""

    async def work(api):
        for number in range(8):
            names = [f"many-{number}-{index}" for index in range(128)]
            spec = {
                "driver": "drawbar.dev",
                "pool": {"name": f"rack-1/many-{number}", "generation": 1, "resourceSliceCount": 1},
                "allNodes": True,
                "devices": [{"name": name, "attributes": {"fabric": {"string": "rack-1"}}} for name in names],
            }
            body = {
                "apiVersion": kinds.SLICE.api_version,
                "kind": "ResourceSlice",
                "metadata": {"name": f"many-{number}"},
            }
            await api.create(kinds.SLICE, body | {"spec": spec}, into=dict)
        async with served(api) as (url, _), browser.opened(url) as tab:
            await tab.until(shows("1027 devices", "#count"))
            assert await tab.evaluate("document.querySelectorAll('#rows [role=row]').length") < 100
            await tab.evaluate("document.getElementById('devices').focus()")
            await tab.press("End")
            await tab.until(shows("disk-9") + " && " + shows("many-7-127"))
            assert await tab.evaluate("document.querySelectorAll('#rows [role=row]').length") < 100
            last = json.loads(
                await tab.evaluate(
                    "JSON.stringify([...document.querySelectorAll('#rows [role=row]')].map((line) => +line.getAttribute('aria-rowindex')))"
                )
            )
            assert last == sorted(last)

    cluster(work)
