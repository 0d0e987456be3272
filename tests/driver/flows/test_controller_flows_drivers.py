"""Two drivers in one cluster, both with both of their daemons, at one fabric manager."""

from tests.scenes import maintenances

from drawbar.driver.kube import kinds

FIRST = "drawbar.dev"


async def in_use(cluster):
    return {
        (attachment["spec"]["driver"], attachment["spec"]["device"])
        for attachment in (await cluster.api.list_all(kinds.ATTACHMENT, into=dict)).items
    }


async def test_a_claim_gets_devices_of_two_drivers_that_share_a_fabric_manager(flow_lab, second_driver):
    second, deploy = second_driver
    async with flow_lab("1.36") as cluster:
        await deploy(cluster.api)
        cluster.start_second(second)
        # Each offers one of the disks.
        await maintenances.begin(cluster.api, devices=["disk-1"])
        endpoint = f"unix:{cluster.path / 'f.sock'}"
        spec = {"adapter": "grpc", "endpoint": endpoint, "driver": second}
        await maintenances.begin(
            cluster.api, name="others", fabric="other", driver=second, devices=["disk-0"]
        )
        await cluster.create(kinds.FABRIC, "other", spec=spec)
        selector = {"cel": {"expression": f'device.driver == "{second}"'}}
        await cluster.create(kinds.DEVICE_CLASS, "second", spec={"selectors": [selector]})
        await cluster.wait_for_taints("disk-1", "maintenance=:NoSchedule")
        requests = [
            {"name": "one", "exactly": {"deviceClassName": "nvme.drawbar.dev"}},
            {"name": "two", "exactly": {"deviceClassName": "second"}},
        ]
        await cluster.create(kinds.CLAIM, "both", "default", spec={"devices": {"requests": requests}})
        await cluster.pod_using("pod", {"name": "both", "resourceClaimName": "both"})
        node, _ = await cluster.wait_until_running("pod")
        assert await in_use(cluster) == {(FIRST, "disk-0"), (second, "disk-1")}
        assert await cluster.list_connections() == {"disk-0": f"host-{node}", "disk-1": f"host-{node}"}
        (claim,) = await cluster.claims()
        reported = {
            (entry["driver"], entry["device"]): {
                condition["type"] for condition in entry["conditions"] if condition["status"] == "True"
            }
            for entry in claim["status"]["devices"]
        }
        assert reported == {
            (driver, device): {f"{driver}/attached", f"{driver}/visible"}
            for driver, device in ((FIRST, "disk-0"), (second, "disk-1"))
        }
        # One driver's controller and node daemon begin again while the other's device goes.
        await cluster.stop("controller")
        await cluster.stop(node)
        await cluster.api.delete(kinds.POD, "pod", namespace="default")
        await cluster.api.delete(kinds.CLAIM, "both", namespace="default")
        cluster.start_node(node)
        await cluster.wait_until_gone("pod")
        await cluster.until(lambda: in_use(cluster), lambda value: value == {(FIRST, "disk-0")})
        assert await cluster.list_connections() == {"disk-0": f"host-{node}"}
        cluster.start_controller()
        await cluster.is_free("disk-0")
        assert cluster.cdi_files == []
        wrote = {
            (write.user, write.name)
            for write in cluster.server.writes
            if write.resource == "deviceattachments"
        }
        assert all(user.endswith(second) == (name == "other.disk-1") for user, name in wrote if name)
