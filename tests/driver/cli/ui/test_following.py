"""The page that is kept current holds what `drawbar status` reads, and names what cannot be read."""

import asyncio
import datetime
import types

import pytest

from drawbar.driver.api import meta
from drawbar.driver.cli import objects
from drawbar.driver.cli.status import building, reading
from drawbar.driver.cli.ui import device_rows, following, model
from drawbar.driver.kube import client, config, kinds
from drawbar.mocks.cluster import deployment

SECONDS = 60
DOWN_SECONDS = 6


async def until(latest, is_so):
    async with asyncio.timeout(SECONDS):
        while not is_so(latest.page):
            await latest.wait_for_newer(latest.page)


async def rows_of_status(api):
    built = building.build(await reading.read(api, objects.Target(), driver="drawbar.dev"))
    return {row.key: row for row in device_rows.from_tree(built)}


def test_the_page_equals_status_after_a_change(cluster):
    async def work(api):
        async with following.following(api, driver="drawbar.dev") as latest:
            assert latest.page.rows == await rows_of_status(api)
            assert [(fabric.name, fabric.state) for fabric in latest.page.fabrics] == [
                ("rack-1", "Connected")
            ]
            assert [claim.name for claim in latest.page.claims] == ["next"]
            await api.delete(kinds.ATTACHMENT, "rack-1.gpu-1")
            await until(latest, lambda page: page.rows["rack-1/enc-1 gpu-1"].device.state == "Allocated")
            assert latest.page.rows == await rows_of_status(api)

    cluster(work)


def test_an_unreadable_kind_is_on_the_page_until_it_is_readable(drawbar_apiserver):
    async def work():
        async with (
            client.connecting(config.from_kubeconfig(drawbar_apiserver.kubeconfig)) as api,
            following.following(api, driver="drawbar.dev") as latest,
        ):
            # There are no CRDs.
            (sentence,) = latest.page.unread
            assert sentence.startswith("fabrics, deviceattachments cannot be read: ")
            # What was never read is not old.
            assert latest.page.stale == model.Stale()
            await deployment.apply(api)
            await until(latest, lambda page: not page.unread)

    asyncio.run(work())


def test_the_page_has_its_age_and_no_good_fabric_until_the_api_server_is_back(cluster):
    def read_clock():
        return meta.timestamp(datetime.datetime.now(datetime.UTC))

    def list_states(page):
        return [fabric.state for fabric in page.fabrics]

    async def work(api):
        before = read_clock()
        async with following.following(api, driver="drawbar.dev") as latest:
            assert (list_states(latest.page), latest.page.stale) == (["Connected"], model.Stale())
            async with asyncio.TaskGroup() as tasks:
                restart = asyncio.to_thread(
                    cluster.server.call, lambda server: server.restart(down_seconds=DOWN_SECONDS)
                )
                tasks.create_task(restart, name="restart")
                await until(latest, lambda page: page.stale.since and list_states(page) == ["Unknown"])
                assert before <= latest.page.stale.since <= read_clock()
                assert "the last known state is Connected" in latest.page.fabrics[0].message
            await until(latest, lambda page: not page.unread)
            assert (list_states(latest.page), latest.page.stale) == (["Connected"], model.Stale())

    cluster(work)


@pytest.mark.parametrize(("is_unreachable", "named"), [(True, ()), (False, ("fabrics", "pods"))])
def test_the_content_is_as_old_as_its_oldest_kind(is_unreachable, named):
    moments = [datetime.datetime(2026, 1, 1, 0, 0, second, tzinfo=datetime.UTC) for second in (5, 3)]
    cluster = types.SimpleNamespace(
        find_stale=lambda: dict(zip(("fabrics", "pods"), moments, strict=True)), is_unreachable=is_unreachable
    )
    assert following.find_stale(cluster) == model.Stale(kinds=named, since="2026-01-01T00:00:03Z")
