"""What a user sees with `kubectl describe` of the claim and of the pod."""

from drawbar.driver.kube import kinds

DEVICE = "gpu-0"


async def told(cluster, kind, name):
    """The reasons of the Events on one object, in order, with what they say."""
    found = (await cluster.api.list_all(kinds.EVENT, into=dict)).items
    mine = [one for one in found if (one["regarding"]["kind"], one["regarding"]["name"]) == (kind, name)]
    mine.sort(key=lambda one: one["eventTime"])
    return [(one["type"], one["reason"], one["note"]) for one in mine]


async def test_claim_and_pod_tell_of_each_step_that_is_waited_for(controller_world, until):
    async with controller_world(attachSeconds=0.2) as cluster:
        cluster.start()
        await cluster.make_fabric()
        await cluster.published()
        await cluster.allocate(DEVICE, pod="pod-1")
        for kind, name in (("ResourceClaim", "c1"), ("Pod", "pod-1")):
            found = await until(
                lambda kind=kind, name=name: told(cluster, kind, name), lambda value: len(value) == 2
            )
            assert [(one, reason) for one, reason, _ in found] == [
                ("Normal", "DeviceAttaching"),
                ("Normal", "DeviceAttached"),
            ]
            assert all("gpu-0 of fabric fab" in note for *_, note in found)


async def test_claim_and_pod_tell_of_a_failure_in_the_fabrics_own_words(controller_world, until):
    fails = [{"device": DEVICE, "message": "the link did not come up"}]
    async with controller_world(attachFails=fails) as cluster:
        cluster.start()
        await cluster.make_fabric()
        await cluster.published()
        await cluster.allocate(DEVICE, pod="pod-1")
        for kind, name in (("ResourceClaim", "c1"), ("Pod", "pod-1")):
            found = await until(
                lambda kind=kind, name=name: told(cluster, kind, name),
                lambda value: any(one[0] == "Warning" for one in value),
            )
            (warning,) = [one for one in found if one[0] == "Warning"]
            assert warning[1] == "FabricError"
            assert "the link did not come up" in warning[2]
