"""What a node says of a device's health keeps new claims away from it, and nothing else."""

import pytest
from tests.scenes import attachments as scenes
from tests.scenes.pools import NOW, make_fabric_state, make_stored_slice

from drawbar.driver.api import attachments
from drawbar.driver.controller.pools import causes, desired
from drawbar.driver.node.health import verdicts
from drawbar.fabric import contract

KEY = "drawbar.dev/node-unhealthy"


def attachment(health, message=""):
    node = attachments.NodeReport(health=health, health_message=message) if health is not None else None
    claim = attachments.ClaimReference(namespace="default", name="c1", uid="u")
    return scenes.attachment(fabric="f", device="a", pool="f/e", node_name="node-1", claim=claim, node=node)


@pytest.mark.parametrize(
    ("health", "unhealthy"),
    [("Unhealthy", True), ("Healthy", False), ("Unknown", False), ("", False), (None, False)],
)
def test_only_a_device_that_its_node_calls_unhealthy_is_that(health, unhealthy):
    assert bool(causes.find_attachment_causes(attachment(health))) is unhealthy


def test_the_node_and_the_controller_mean_the_same_word():
    assert verdicts.Status.UNHEALTHY.value == attachments.UNHEALTHY


def test_an_attach_that_goes_well_changes_nothing_that_its_pool_shows():
    # A pool has up to thousands of devices, and would be decided again at each step of each attach.
    assert {causes.find_attachment_causes(None)} == {
        causes.find_attachment_causes(attachment(health)) for health in (None, "", "Unknown", "Healthy")
    }
    ill, more = attachment("Unhealthy"), attachment("Unhealthy", message="hotter")
    assert causes.find_attachment_causes(ill) != causes.find_attachment_causes(None)
    assert causes.find_attachment_causes(ill) != causes.find_attachment_causes(more), (
        "what the taint says is another thing"
    )


def publish_slices(*before, unhealthy=frozenset()):
    """Return the slices that are written for the pool's only device, none if nothing changed."""
    hanging = contract.Connection(host_id="h1")
    listed = contract.Device(id="a", device_class=contract.DeviceClass.GPU, enclosure="e", connection=hanging)
    facts = make_fabric_state(listed, ours={"a"}, unhealthy=unhealthy, published=before)
    return [make_stored_slice(action) for action in desired.plan(facts, NOW)]


def test_an_unhealthy_device_repels_new_claims_until_it_is_well_and_evicts_no_pod():
    (healthy,) = publish_slices()
    (device,) = healthy.spec.devices
    assert device.taints == ()
    (ill,) = publish_slices(healthy, unhealthy=frozenset({"a"}))
    (taint,) = ill.spec.devices[0].taints
    assert (taint.key, taint.effect) == (KEY, "NoSchedule")
    assert publish_slices(ill, unhealthy=frozenset({"a"})) == []
    (well,) = publish_slices(ill)
    assert well.spec.devices[0].taints == ()
