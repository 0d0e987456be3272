"""The page that is kept current holds what `drawbar status` reads, and names what cannot be read."""

import asyncio

from drawbar.driver.cli import objects
from drawbar.driver.cli.status import building, reading
from drawbar.driver.cli.ui import device_rows, following
from drawbar.driver.kube import client, config, kinds
from drawbar.mocks.cluster import deployment

SECONDS = 60


async def until(latest, is_so):
    async with asyncio.timeout(SECONDS):
        while not is_so(latest.page):
            await latest.wait_for_newer(latest.page)


async def rows_of_status(api):
    built = building.build(await reading.read(api, objects.Target(), driver="drawbar.dev"))
    return {row.key: row for row in device_rows.from_tree(built)}


def test_after_a_change_the_page_is_what_status_reads(cluster):
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


def test_what_cannot_be_read_is_on_the_page_until_it_can_be(drawbar_apiserver):
    async def work():
        async with (
            client.connecting(config.from_kubeconfig(drawbar_apiserver.kubeconfig)) as api,
            following.following(api, driver="drawbar.dev") as latest,
        ):
            assert len(latest.page.unread) == 2  # fabrics and deviceattachments: there are no CRDs
            await deployment.apply(api)
            await until(latest, lambda page: not page.unread)

    asyncio.run(work())
