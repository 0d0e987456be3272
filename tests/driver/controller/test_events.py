"""What a user sees with `kubectl describe` of the claim and of the pod."""

from drawbar.driver.kube import kinds

DEVICE = "gpu-0"


async def test_claim_pod_and_attachment_tell_of_each_step_that_is_waited_for(served_world, until):
    async with served_world(attachSeconds=0.2) as cluster:
        await cluster.allocate(DEVICE, pod="pod-1")
        about = (("ResourceClaim", "c1"), ("Pod", "pod-1"), ("DeviceAttachment", f"fab.{DEVICE}"))
        for kind, name in about:
            events = await until(
                lambda kind=kind, name=name: cluster.events(kind, name), lambda value: len(value) == 2
            )
            assert [(kind, reason) for kind, reason, _ in events] == [
                ("Normal", "DeviceAttaching"),
                ("Normal", "DeviceAttached"),
            ]
            assert all("gpu-0 of fabric fab" in note for *_, note in events)


async def test_claim_and_pod_tell_of_a_failure_in_the_fabrics_own_words(served_world, until):
    fails = [{"device": DEVICE, "message": "the link did not come up"}]
    async with served_world(attachFails=fails) as cluster:
        await cluster.allocate(DEVICE, pod="pod-1")
        for kind, name in (("ResourceClaim", "c1"), ("Pod", "pod-1")):
            events = await until(
                lambda kind=kind, name=name: cluster.events(kind, name),
                lambda value: any(event[0] == "Warning" for event in value),
            )
            (warning,) = [event for event in events if event[0] == "Warning"]
            assert warning[1] == "FabricError"
            assert "the link did not come up" in warning[2]


async def test_claim_and_pod_tell_why_a_device_is_waited_for_and_each_cause_once(controller_world, until):
    async with controller_world() as cluster:
        controller = await cluster.controller()
        await cluster.make_fabric()
        await cluster.wait_for_slices()
        await cluster.allocate(DEVICE, name="c1", pod="pod-1")
        await cluster.wait_until_attached(DEVICE)
        await cluster.deallocate("c1")
        await cluster.wait_until_deleting(f"fab.{DEVICE}")
        await cluster.allocate(DEVICE, name="c2", pod="pod-2", node="node-2")

        async def look_for_events(kind, name):
            controller._delays.look(0.0)
            return await cluster.events(kind, name)

        for kind, name in (("ResourceClaim", "c2"), ("Pod", "pod-2")):
            (reported,) = await until(lambda kind=kind, name=name: look_for_events(kind, name), bool)
            assert reported[:2] == ("Normal", "DeviceWaiting")
            assert "on its way back from node node-1" in reported[2]
        await cluster.node_says(f"fab.{DEVICE}", "Released")
        await cluster.wait_until_attached(DEVICE, "c2")
        reported = await until(lambda: look_for_events("Pod", "pod-2"), lambda value: len(value) > 1)
        assert [reason for _, reason, _ in reported] == ["DeviceWaiting", "DeviceAttached"]


async def test_one_who_waited_before_the_controller_led_gets_events_too(controller_world, until):
    async with controller_world() as cluster:
        await cluster.controller()
        await cluster.make_fabric()
        await cluster.wait_for_slices()
        await cluster.stop()
        await cluster.allocate(DEVICE, pod="pod-1")
        endpoint = {"spec": {"endpoint": "unix:/nowhere"}}
        await cluster.patch(kinds.FABRIC, "fab", endpoint)
        controller = await cluster.controller()

        async def look_for_events():
            controller._delays.look(0.0)
            return await cluster.events("Pod", "pod-1")

        events = await until(look_for_events, lambda value: any("not reached" in note for *_, note in value))
        assert {reason for _, reason, _ in events} == {"DeviceWaiting"}


async def test_a_pod_that_waits_for_its_node_gets_one_event(controller_world, until):
    async with controller_world() as cluster:
        controller = await cluster.controller()
        await cluster.make_fabric()
        await cluster.wait_for_slices()
        await cluster.allocate(DEVICE, pod="pod-1")
        await cluster.wait_until_attached(DEVICE)

        async def look_for_events(patience_seconds=0.0, name="pod-1"):
            controller._delays.look_at_nodes(patience_seconds)
            kind = "Pod" if name == "pod-1" else "ResourceClaim"
            return [entry for entry in await cluster.events(kind, name) if "waiting for its node" in entry[2]]

        assert await look_for_events(3600.0) == []
        await until(look_for_events, bool)
        for name in ("pod-1", "c1"):
            ((kind, reason, note),) = await look_for_events(name=name)
            assert (kind, reason) == ("Normal", "DeviceWaiting")
            assert "node-1 to report it ready" in note


async def test_a_fabric_device_allocated_without_binding_conditions_causes_one_event(controller_world, until):
    async with controller_world() as cluster:
        controller = await cluster.controller()
        await cluster.make_fabric()
        await cluster.wait_for_slices()
        await cluster.allocate(DEVICE, pod="pod-1", bindingConditions=[], bindingFailureConditions=[])
        # That of a node's own pool is none of the controller's.
        await cluster.allocate(
            "local", name="c2", pool="node-1", bindingConditions=[], bindingFailureConditions=[]
        )

        async def look_for_events():
            controller._delays.look_at_allocations()
            return await cluster.events("ResourceClaim", "c1")

        await until(look_for_events, bool)
        ((kind, reason, note),) = await look_for_events()
        assert (kind, reason) == ("Warning", "DeviceNeverAttached")
        assert "DRADeviceBindingConditions" in note
        assert await cluster.events("ResourceClaim", "c2") == []


async def test_an_allocation_without_a_timestamp_gets_the_reason_why_it_cannot_be_used(served_world, until):
    async with served_world() as cluster:
        await cluster.allocate(DEVICE, pod="pod-1", at=None)
        device_conditions = await until(cluster.device_conditions, bool)
        assert device_conditions == {DEVICE: {"attach-failed": "NoAllocationTimestamp"}}
        events = await until(lambda: cluster.events("ResourceClaim", "c1"), bool)
        assert events[0][:2] == ("Warning", "NoAllocationTimestamp")
        assert await cluster.attachments() == {}
