"""Claims with text that is no Unicode: they harm no other claim, and get their own device, with every daemon and verb."""

import msgspec
import pytest

from drawbar.driver.kube import kinds

pytestmark = pytest.mark.attack

HOSTILE = {
    "surrogate": rb'"\ud800"',
    "byte": b'"\xff"',
    "key": b'{"\xff\\udc00":1}',
}
VERBS = (
    ("status",),
    ("status", "claim/poison", "-n", "default"),
    ("explain", "claim/poison", "-n", "default"),
    ("doctor",),
)


def claim(value):
    """Return the JSON of a claim for one disk, with parameters for another driver."""
    config = b'{"opaque":{"driver":"some.other.driver","parameters":{"a":%s}}}' % value
    request = b'{"name":"disk","exactly":{"deviceClassName":"nvme.drawbar.dev"}}'
    metadata = b'{"name":"poison","namespace":"default"}'
    return (
        b'{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":%s,"spec":{"devices":{"requests":[%s],"config":[%s]}}}'
        % (
            metadata,
            request,
            config,
        )
    )


async def create(cluster, value):
    """Create the claim; the API server sends the value as it was written."""
    path = kinds.CLAIM.path(namespace="default")
    await cluster.api.request("POST", path, body=msgspec.Raw(claim(value)))
    assert value in await cluster.api.request("GET", f"{path}/poison")


@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_claim_with_invalid_unicode_gets_its_device(flow_lab, kind):
    async with flow_lab("1.36", devices=3) as cluster:
        await cluster.until(cluster.slices, bool)
        # In a watch: of a claim that no pod uses, then of one that is allocated.
        await create(cluster, HOSTILE[kind])
        await cluster.pod("before")
        await cluster.wait_until_running("before")
        await cluster.pod_using("owner", {"name": "disk", "resourceClaimName": "poison"})
        await cluster.wait_until_running("owner")
        # In a list: of a controller and node daemons that start only now.
        for name in ("controller", "node-1", "node-2"):
            await cluster.stop(name)
        cluster.start_controller()
        for name in ("node-1", "node-2"):
            cluster.start_node(name)
        await cluster.pod("after")
        await cluster.wait_until_running("after")
        for words in VERBS:
            status, out, err = await cluster.operate(*words)
            # An operator may not look at everything that the doctor looks at.
            assert status in (0, 1) or words == ("doctor",), (words, out, err)
            assert "cannot be read" not in out + err or words == ("doctor",), (words, out, err)
        await cluster.api.delete(kinds.POD, "owner", namespace="default")
        await cluster.wait_until_gone("owner")
        await cluster.api.delete(kinds.CLAIM, "poison", namespace="default")
        await cluster.until(cluster.attachments, lambda held: len(held) == 2)
