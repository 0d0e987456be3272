"""What a Fabric's status shows before and after a controller serves it."""

from drawbar.driver.api import fabrics, meta
from drawbar.driver.kube import kinds


async def test_a_fabric_that_no_controller_serves_shows_that_it_waits_until_a_controller_does(
    controller_world, until
):
    async with controller_world() as cluster:
        await cluster.make_fabric()
        made = await cluster.api.read(kinds.FABRIC, "fab", into=fabrics.Fabric)
        (waits,) = made.status.conditions
        assert (waits.type, waits.status, waits.reason) == (fabrics.CONNECTED, "Unknown", "Pending")
        assert "Waiting for a controller" in waits.message
        cluster.start()

        async def conditions():
            fabric = await cluster.api.read(kinds.FABRIC, "fab", into=fabrics.Fabric)
            return fabric.status.conditions

        served = await until(conditions, lambda listed: meta.is_true(listed, fabrics.CONNECTED))
        assert [condition.type for condition in served].count(fabrics.CONNECTED) == 1
        assert meta.find(served, fabrics.CONNECTED).last_transition_time > "2020"
