"""Several drivers with classic allocation in one cluster: what one has put on a claim no other takes off."""

import datetime

import msgspec
import pytest

from drawbar.driver.api import classic, classic_v1alpha2
from drawbar.driver.controller.allocation import matching
from drawbar.driver.controller.classic import actions, claim_requests, history, negotiation, observation

DRIVERS = ("drawbar.dev", "gpu.example.com")
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def plan_actions(document, driver):
    """Return what the driver's controller does about a claim that nothing is known of but what stands in it."""
    claim = classic_v1alpha2.claim(msgspec.convert(document, classic_v1alpha2.ResourceClaim), driver)
    sources = claim_requests.Sources(driver=driver, classes={}, data={}, fault=lambda _: None)
    ours = claim_requests.is_ours(claim, sources)
    observed = observation.Round(
        claims={claim.name: claim} if ours else {},
        requests={claim.uid: claim_requests.read_requests(claim, sources)},
        contexts={},
        pods={},
        nodes={},
        gone_at={},
        attachments=(),
        inventory=matching.Inventory(),
        judge=lambda device, expression: False,
        patience=datetime.timedelta(seconds=570),
        seen={},
        date=NOW,
    )
    return negotiation.plan(observed, history.History(), NOW).actions


@pytest.mark.parametrize("deleted", [{}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}], ids=["", "deleted"])
@pytest.mark.parametrize(("owner", "other"), [DRIVERS, DRIVERS[::-1]])
def test_the_finalizer_of_a_claim_whose_class_is_gone_is_taken_off_by_its_driver_alone(owner, other, deleted):
    finalizers = ["example.com/keep", classic.finalizer(owner)]
    metadata = {"namespace": "ns", "name": "c", "uid": "u", "finalizers": finalizers} | deleted
    document = {"metadata": metadata, "spec": {"resourceClassName": "gone"}}
    assert plan_actions(document, other) == ()
    (step,) = plan_actions(document, owner)
    assert isinstance(step, actions.Unprotect)
    assert step.claim.other_finalizers == ("example.com/keep",)


def test_the_default_driver_has_the_finalizer_that_policies_and_documentation_name():
    assert classic.finalizer(DRIVERS[0]) == "drawbar.dev/allocation"
