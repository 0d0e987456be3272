"""Which devices a change took from their host, and how that is told."""

import pytest

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish import calls, losses, restoring
from drawbar.fabric.redfish.documents import Document

ZONE = "/redfish/v1/Fabrics/F/Zones/1"
CALL = calls.Call(method="PATCH", uri=ZONE)


def devices(**hosts):
    """Return devices by id, each at the host of this id, or free."""
    return {
        name: contract.Device(
            id=name,
            device_class=contract.DeviceClass.GPU,
            connection=contract.Connection(host_id=host_id, port_id="p") if host_id else None,
        )
        for name, host_id in hosts.items()
    }


@pytest.mark.parametrize(
    ("before", "meant", "kept"),
    [
        ({"a": "h1", "b": "h1", "c": "h2", "d": ""}, "a", ("b",)),
        ({"a": "h1", "b": "h1"}, "", ("a", "b")),
        ({"a": "h2"}, "a", ()),
    ],
    ids=["others of the host", "none is meant", "another host"],
)
def test_a_change_leaves_the_hosts_other_devices(before, meant, kept):
    assert losses.find_kept(losses.find_owners(devices(**before)), "h1", meant) == kept


@pytest.mark.parametrize(
    ("after", "lost"),
    [
        ({"a": "h1", "b": "h1"}, ()),
        ({"a": "h1", "b": ""}, ("b",)),
        ({"a": "h2", "b": "h1"}, ("a",)),
        ({"a": "h1"}, ()),
    ],
    ids=["in place", "free", "at another host", "not listed"],
)
def test_a_listed_device_that_left_its_host_is_lost(after, lost):
    assert losses.find_lost(("a", "b"), devices(**after), "h1") == lost


@pytest.mark.parametrize(
    ("left", "missing"),
    [
        (["/e/h", "/e/x"], ()),
        (["/e/h/", "/e/x"], ()),
        (["/E/H", "/e/x"], ()),
        (["/e/x"], ("the member h",)),
        ([], ("the member h",)),
    ],
)
def test_the_hosts_own_member_has_to_stay(left, missing):
    change = restoring.Change(
        name="Endpoints", before=("/e/h",), wanted=("/e/h", "/e/x"), own=frozenset({"/e/h"})
    )
    after = Document(uri=ZONE, body={"Links": {"Endpoints": [{"@odata.id": uri} for uri in left]}})
    assert losses.find_missing(change, after) == missing


@pytest.mark.parametrize(
    ("now", "taken"),
    [
        ({"a": ""}, frozenset()),
        ({"a": "h1"}, frozenset()),
        ({"a": "h2"}, frozenset({"/e/a"})),
        ({}, frozenset({"/e/a"})),
    ],
    ids=["free", "at the host", "at another host", "not listed"],
)
def test_a_device_that_is_in_use_elsewhere_is_not_put_back(now, taken):
    def find_ids(uris):
        return frozenset(uri.rpartition("/")[2] for uri in uris if uri != "/e/h")

    assert losses.find_taken(("/e/h", "/e/a"), devices(**now), "h1", find_ids) == taken


@pytest.mark.parametrize(
    ("remains", "reason", "remedy", "words"),
    [
        ((), "", "", "(a, b); put back: a, b; look at `profile`"),
        (("b",), "it is busy", "", "put back: a; not put back: b, since it is busy; attach them again"),
        (
            ("a", "b"),
            "",
            "set zoneBody: links",
            "not put back: a, b; attach them again at the service; set zoneBody",
        ),
    ],
    ids=["all", "one", "none"],
)
def test_a_loss_is_told_with_its_remedy(remains, reason, remedy, words):
    error = losses.build_error(CALL, "h1", lost=("a", "b"), remains=remains, reason=reason, remedy=remedy)
    assert error.reason == errors.Reason.OTHERS_LOST
    assert error.host_id == "h1"
    assert words in error.message
