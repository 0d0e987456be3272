"""The page in a browser, on the mock cluster: what it shows is what the cluster has, after each change."""

import asyncio
import datetime
import json

import pytest

from drawbar.driver.api import meta
from drawbar.driver.cli import objects
from drawbar.driver.cli.status import building, reading
from drawbar.driver.cli.taint import execution
from drawbar.driver.cli.ui import server
from drawbar.driver.kube import client, config, kinds
from drawbar.mocks.testing import browser

pytestmark = pytest.mark.tool("chromium")

COLUMNS = ["device", "state", "model", "claim", "why"]
ROWS = f"""[...document.querySelectorAll('#rows [aria-level="2"]')].map(
    (line) => {COLUMNS}.map((name) => line.querySelector("." + name)?.textContent ?? ""))"""
WIDTH = 2200
DEVICES = "#/devices"


def shows(text, where="#rows"):
    """Return an expression that is true once the page has a text."""
    return f"Boolean(document.querySelector({where!r})?.textContent.includes({text!r}))"


def normalise(state):
    """Return the state of a chip's text: without its icon and step."""
    return state[1:].partition(" ")[0]


async def texts_of(api):
    """Return name, state, model, claims and reason of each device, as `drawbar status` has them."""
    built = building.build(await reading.read(api, objects.Target(), driver="drawbar.dev"))
    return sorted(
        (
            device.name,
            device.state,
            device.model,
            ", ".join(f"{claim.namespace}/{claim.name}" for claim in device.claims),
            "; ".join(
                [
                    *(f"waits for {device.waits_for}" for _ in range(1) if device.waits_for),
                    *(f"{taint.key}:{taint.effect}" for taint in device.taints),
                ]
            ),
        )
        for device in built.devices
    )


async def texts_of_page(tab):
    rows = await tab.evaluate(ROWS)
    return sorted((name, normalise(state), *rest) for name, state, *rest in rows)


def test_it_shows_the_cluster_and_each_change_of_it(cluster, serve_page):
    async def work(api):
        async with serve_page(api) as (url, _), browser.opening(url + DEVICES, width=WIDTH) as tab:
            await tab.until(shows("gpu-1"))
            assert await texts_of_page(tab) == await texts_of(api)
            await api.delete(kinds.ATTACHMENT, "rack-1.gpu-1")
            await tab.until(shows("Allocated"))
            assert await texts_of_page(tab) == await texts_of(api)
            await tab.until(shows("gpu-1 is Allocated", "#news"))
            await api.delete(kinds.SLICE, "node-1")
            await api.delete(kinds.CLAIM, "local", namespace="default")
            await tab.until("!" + shows("disk-9"))
            assert await texts_of_page(tab) == await texts_of(api)

    cluster(work)


def test_the_overview_has_tiles_the_map_and_the_pending_claim_with_its_reason(cluster, serve_page):
    async def work(api):
        async with serve_page(api) as (url, _), browser.opening(url) as tab:
            await tab.until(shows("gpu-1", "#map"))
            tiles = (
                "[...document.querySelectorAll('.tile')].map((tile) => tile.innerText.replaceAll('\\n', ' '))"
            )
            listed = await tab.evaluate(tiles)
            assert any("GPU" in tile and "1 of 2 in use" in tile for tile in listed)
            assert any(
                "Claims waiting" in tile and "0" in tile and "1 without a pod" in tile for tile in listed
            )
            assert not await tab.evaluate(shows("default/next", "#attention"))
            assert await tab.evaluate(shows("drawbar.dev/maintenance:NoSchedule", "#attention"))
            assert await tab.evaluate("document.querySelectorAll('.lines .line.used').length") == 1
            assert await tab.evaluate("document.querySelector('.cell.blocked').textContent") == "▲gpu-2"

    cluster(work)


async def create_unschedulable_pod(api, message):
    """Create a pod that names the claim `next`, with the scheduler's message."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "next-0"},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "next"}],
        },
    }
    await api.create(kinds.POD, body, into=dict, namespace="default")
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
    }
    await api.patch(
        kinds.POD,
        "next-0",
        {"status": {"conditions": [condition]}},
        content=client.Patch.MERGE,
        into=dict,
        namespace="default",
        subresource="status",
    )


def test_a_pod_without_a_node_tells_why_its_claim_waits(cluster, serve_page):
    message = "0/1 nodes are available: 1 cannot allocate all claims"
    preemption = ". still not schedulable, preemption: 0/1 nodes are available: 1 Preemption is not helpful."

    async def work(api):
        await create_unschedulable_pod(api, message + preemption)
        async with serve_page(api) as (url, _), browser.opening(url) as tab:
            await tab.until(shows("default/next", "#attention"))
            assert not await tab.evaluate(shows("preemption", "#attention"))

    cluster(work)


@pytest.mark.drawbar(profile="1.37")
def test_a_taint_rule_is_shown_on_its_devices_until_it_is_gone(cluster, serve_page):
    async def work(api):
        kind = await execution.rule_kind(api)
        taint = {"key": "example.com/psu", "effect": "NoExecute"}
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": "psu"},
            "spec": {"deviceSelector": {"driver": "drawbar.dev", "pool": "rack-1/enc-1"}, "taint": taint},
        }
        async with serve_page(api) as (url, _), browser.opening(url + DEVICES, width=WIDTH) as tab:
            await tab.until(shows("gpu-1"))
            await api.create(kind, body, into=dict)
            await tab.until(shows("example.com/psu:NoExecute"))
            rows = await tab.evaluate(ROWS)
            assert [row[0] for row in rows if "example.com/psu:NoExecute" in row[-1]] == ["gpu-1", "gpu-2"]
            await api.delete(kind, "psu")
            await tab.until("!" + shows("example.com/psu:NoExecute"))

    cluster(work)


@pytest.mark.parametrize(
    ("condition", "status", "shown"),
    [
        ("Degraded", "True", "Degraded"),
        ("Published", "False", "NotPublished"),
        ("Connected", "False", "Lost"),
    ],
)
def test_a_fabric_with_a_bad_condition_is_never_green(cluster, serve_page, condition, status, shown):
    bad = {"type": condition, "status": status, "reason": "Lost", "message": "host-1 is avoided"}
    good = {"type": "Connected", "status": "True", "reason": "Connected", "message": ""}

    async def work(api):
        conditions = [bad] if condition == "Connected" else [good, bad]
        for each in conditions:
            each["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        await api.patch(
            kinds.FABRIC,
            "rack-1",
            {"status": {"conditions": conditions}},
            content=client.Patch.MERGE,
            into=dict,
            subresource="status",
        )
        async with serve_page(api) as (url, _), browser.opening(url) as tab:
            await tab.until(shows("host-1 is avoided", "#attention"))
            assert await tab.evaluate(shows(shown, "#map-head .chip"))
            assert await tab.evaluate("document.querySelectorAll('#map-head .good').length") == 0
            await tab.evaluate("location.hash = '#/fabric/rack-1'")
            await tab.until(shows("host-1 is avoided", "#object"))
            assert await tab.evaluate("document.querySelectorAll('#object .chip.good').length") == 0

    cluster(work)


def test_it_asks_nobody_else_and_breaks_no_rule_of_its_policy(cluster, serve_page):
    async def work(api):
        async with serve_page(api) as (url, _), browser.opening(url) as tab:
            await tab.until(shows("gpu-1", "#map"))
            paths = {request.removeprefix(url) for request in tab.requests}
            # The browser asks for the icon at a time of its own.
            assert paths | {"icon.svg"} == {"updates", *server.read_files("page")}
            assert tab.complaints == []
            refused = "fetch('https://example.com/').then(() => 'sent', () => 'refused')"
            assert await tab.evaluate(refused) == "refused"

    cluster(work)


def test_foreign_text_stays_text(cluster, serve_page):
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
        async with serve_page(api) as (url, _), browser.opening(url) as tab:
            await tab.until(shows("Failed", "#attention"))
            assert await tab.evaluate(shows(markup, "#attention"))
            assert await tab.evaluate("document.querySelectorAll('main img').length") == 0
            for route in ("#/devices", "#/device/rack-1%2Fenc-1/gpu-1", "#/claim/default/train"):
                await tab.evaluate(f"location.hash = {route!r}")
                await tab.until(shows(markup, "main > :not([hidden])"))
                assert await tab.evaluate("document.querySelectorAll('main img').length") == 0

    cluster(work)


@pytest.mark.parametrize("reason", ["FabricCredentialsRefused", ""], ids=["refused", "overdue"])
def test_a_device_that_waits_too_long_or_is_refused_needs_attention(cluster, serve_page, reason):
    stamp = {"lastTransitionTime": "2026-01-01T00:00:00Z", "message": "not allowed"}
    attached = {"type": "Attached", "status": "False" if reason else "True", "reason": reason or "Attached"}

    async def work(api):
        status = {"status": {"phase": "Pending" if reason else "Attached", "conditions": [attached | stamp]}}
        await api.patch(
            kinds.ATTACHMENT,
            "rack-1.gpu-1",
            status,
            content=client.Patch.MERGE,
            into=dict,
            subresource="status",
        )
        async with serve_page(api) as (url, _), browser.opening(url) as tab:
            await tab.until(shows("gpu-1", "#moving"))
            assert await tab.evaluate(shows(reason or "overdue", "#attention"))

    cluster(work)


def test_an_idle_page_shows_a_device_as_overdue_when_its_deadline_passes(cluster, serve_page):
    async def work(api):
        now = {"lastTransitionTime": meta.timestamp(datetime.datetime.now(datetime.UTC))}
        attached = {"type": "Attached", "status": "True", "reason": "Attached", "message": ""}
        status = {"status": {"phase": "Attached", "conditions": [attached | now]}}
        await api.patch(
            kinds.ATTACHMENT,
            "rack-1.gpu-1",
            status,
            content=client.Patch.MERGE,
            into=dict,
            subresource="status",
        )
        async with serve_page(api) as (url, _), browser.opening(url) as tab:
            await tab.until(shows("gpu-1", "#moving"))
            assert not await tab.evaluate(shows("overdue", "#attention"))
            await tab.evaluate("{ const begin = Date.now(); Date.now = () => begin + 3600 * 1000; }")
            await tab.until(shows("overdue", "#attention"))

    cluster(work)


def test_the_keyboard_reaches_all_of_a_device_and_comes_back(cluster, serve_page):
    async def work(api):
        async with serve_page(api) as (url, _), browser.opening(url) as tab:
            await tab.until(shows("gpu-1", "#map"))
            await tab.press("/")
            for letter in "gpu-1":
                await tab.press(letter)
            await tab.until(shows("1 of 3 devices", "#count"))
            await tab.press("Enter")
            await tab.until("document.activeElement.id === 'devices'")
            await tab.press("ArrowDown")
            active = "document.getElementById(document.activeElement.getAttribute('aria-activedescendant'))"
            assert "gpu-1" in await tab.evaluate(f"{active}.textContent")
            assert await tab.evaluate(f"{active}.getAttribute('aria-selected')") == "true"
            await tab.press("Enter")
            detail = await tab.until(
                "document.activeElement.id === 'object' && document.activeElement.innerText"
            )
            for text in ("gpu-1", "rack-1", "S1", "host-1", "default/train", "train-0"):
                assert text in detail
            await tab.press("Escape")
            await tab.until(
                "document.activeElement.id === 'devices' && location.hash === '#/devices?q=gpu-1'"
            )
            await tab.press("ArrowUp")
            await tab.press("ArrowLeft")
            await tab.until("!document.querySelector('#rows [aria-level=\"2\"]')")
            assert await tab.evaluate(f"{active}.getAttribute('aria-expanded')") == "false"

    cluster(work)


def test_arrow_keys_walk_the_map_and_light_an_attachment_from_port_to_slot(cluster, serve_page):
    async def work(api):
        async with serve_page(api) as (url, _), browser.opening(url) as tab:
            await tab.until(shows("gpu-1", "#map"))
            await tab.evaluate("document.querySelector('#map .cell').focus()")
            key = await tab.evaluate("document.activeElement.dataset.key")
            assert key == "rack-1/enc-1 gpu-1"
            lit = "[...document.querySelectorAll('.lit')].map((each) => each.getAttribute('class').split(' ')[0]).sort()"
            assert await tab.evaluate(lit) == ["cell", "line", "port"]
            assert await tab.evaluate(shows("claim default/train", "#map-foot"))
            await tab.press("ArrowRight")
            assert await tab.evaluate("document.activeElement.dataset.key") == "rack-1/enc-1 gpu-2"
            await tab.press("ArrowLeft")
            await tab.press("ArrowLeft")
            assert await tab.evaluate("document.activeElement.className") == "port used spot lit"
            await tab.press("t")
            await tab.until("location.hash === '#/devices'")

    cluster(work)


def test_a_claim_that_waits_shows_its_reason_and_opens_its_explanation(cluster, serve_page):
    async def work(api):
        await create_unschedulable_pod(api, "0/1 nodes are available: 1 cannot allocate all claims")
        async with serve_page(api) as (url, _), browser.opening(url) as tab:
            await tab.until(shows("wants 1 device; 2 match, and 0 are free", "#attention"))
            chip = await tab.evaluate("document.querySelector('#attention .chip').textContent")
            assert chip.startswith("…waits ")
            await tab.evaluate("document.querySelector('#attention .action').click()")
            await tab.until(shows("claim default/next", "#object .findings"))
            assert await tab.evaluate("location.hash") == "#/claim/default/next?explain"
            assert await tab.evaluate(shows("wants 1 device; 2 match, and 0 are free", "#object .findings"))

    cluster(work)


def test_columns_sort_and_the_address_keeps_the_view(cluster, serve_page):
    names = "[...document.querySelectorAll('#rows [role=gridcell].device')].map((cell) => cell.textContent)"

    async def work(api):
        async with serve_page(api) as (url, _):
            async with browser.opening(url + DEVICES) as tab:
                await tab.until(shows("gpu-1"))
                await tab.evaluate("document.querySelector('#group').value = 'none'")
                await tab.evaluate("document.querySelector('#group').dispatchEvent(new Event('change'))")
                for address, order in (
                    ("sort=device", ["disk-9", "gpu-1", "gpu-2"]),
                    ("sort=device-desc", ["gpu-2", "gpu-1", "disk-9"]),
                ):
                    await tab.evaluate("document.querySelector('[data-sort=device]').click()")
                    await tab.until(
                        f"location.hash.includes({address!r}) && {names}.join() === {','.join(order)!r}"
                    )
                await tab.evaluate("[...document.querySelectorAll('#show a')].at(-1).click()")
                await tab.until(f"{names}.join() === 'gpu-2'")
                address = await tab.evaluate("location.hash")
            async with browser.opening(url + address) as other:
                await other.until(shows("1 of 3 devices", "#count"))

    cluster(work)


def test_a_screen_reader_gets_a_table_with_its_full_size(cluster, serve_page):
    async def work(api):
        async with serve_page(api) as (url, _), browser.opening(url + DEVICES, width=WIDTH) as tab:
            await tab.until(shows("gpu-1"))
            nodes = await tab.accessibility()
            assert ("treegrid", "Devices") in nodes
            assert any(role == "columnheader" and name.startswith("Why") for role, name in nodes)
            assert ("gridcell", "gpu-2") in nodes
            assert ("gridcell", "drawbar.dev/maintenance:NoSchedule") in nodes
            assert ("searchbox", "Search devices, claims, nodes and pods") in nodes
            assert (
                await tab.evaluate("document.getElementById('devices').getAttribute('aria-rowcount')") == "6"
            )
            indexes = "[...document.querySelectorAll('#rows [role=row]')].map((line) => line.getAttribute('aria-rowindex'))"
            assert await tab.evaluate(indexes) == ["2", "3", "4", "5", "6"]

    cluster(work)


@pytest.mark.parametrize(("is_dark", "paper"), [(False, "rgb(245, 247, 250)"), (True, "rgb(13, 18, 24)")])
def test_it_is_light_or_dark_as_the_user_prefers(cluster, serve_page, is_dark, paper):
    async def work(api):
        async with serve_page(api) as (url, _), browser.opening(url, is_dark=is_dark) as tab:
            assert await tab.evaluate("getComputedStyle(document.body).backgroundColor") == paper

    cluster(work)


def test_groups_and_states_are_views_of_the_same(cluster, serve_page):
    async def work(api):
        async with (
            serve_page(api) as (url, _),
            browser.opening(url + "#/devices?group=host", width=WIDTH) as tab,
        ):
            await tab.until(shows("host host-1, node node-1"))
            await tab.evaluate("location.hash = '#/devices?show=moving'")
            await tab.until(shows("0 of 3 devices", "#count"))
            await api.delete(kinds.ATTACHMENT, "rack-1.gpu-1")
            await tab.until(shows("the controller, to begin the attach"))

    cluster(work)


def test_an_unreadable_kind_is_named(drawbar_apiserver, serve_page):
    async def work():
        async with (
            client.connecting(config.from_kubeconfig(drawbar_apiserver.kubeconfig)) as api,
            serve_page(api) as (url, _),
            browser.opening(url) as tab,
        ):
            await tab.until(shows("install Drawbar's chart", "#attention"))

    asyncio.run(work())


def test_of_many_devices_only_those_in_sight_are_in_the_document(cluster, serve_page):
    """The page would stutter with 10,000 devices otherwise."""

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
        async with serve_page(api) as (url, _), browser.opening(url + DEVICES) as tab:
            await tab.until(shows("1,027 devices", "#count"))
            assert await tab.evaluate("document.querySelectorAll('#rows [role=row]').length") < 100
            await tab.evaluate("document.getElementById('devices').focus()")
            await tab.press("End")
            await tab.until(shows("many-7-127"))
            assert await tab.evaluate("document.querySelectorAll('#rows [role=row]').length") < 100
            last = json.loads(
                await tab.evaluate(
                    "JSON.stringify([...document.querySelectorAll('#rows [role=row]')].map((line) => +line.getAttribute('aria-rowindex')))"
                )
            )
            assert last == sorted(last)

    cluster(work)
