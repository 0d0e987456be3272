"""A service on which the chosen profile lists nothing: the listing names the profile that would list something."""

import pytest

from drawbar.fabric import errors

MEMORY = {"method": "connections"}
APPLIANCE = MEMORY | {"initiators": False}
COMPOSITION = {"method": "composition"}
# The form of a service, the profile that is given, and the one that lists something.
WRONG = {
    "connections of an appliance": (APPLIANCE, "connections", "cma would list 3 devices and 2 hosts"),
    "zones of an appliance": (APPLIANCE, "generic", "cma would list 3 devices and 2 hosts"),
    "h3 of an appliance": (APPLIANCE, "h3", "cma would list 3 devices and 2 hosts"),
    "zones of connections": (MEMORY, "sunfish", "connections would list 3 devices and 2 hosts"),
    "connections of zones": ({}, "connections", "generic would list 3 devices and 2 hosts"),
    "an appliance of zones": ({}, "cma", "generic would list 3 devices and 2 hosts"),
}
REFUSED = {
    "zones of a composition": (COMPOSITION, "generic", "composition would list 3 devices and 2 hosts"),
    "connections of a composition": (
        COMPOSITION,
        "connections",
        "composition would list 3 devices and 2 hosts",
    ),
    "an appliance of a composition": (COMPOSITION, "cma", "composition would list 3 devices and 2 hosts"),
    "a composition of zones": ({}, "composition", "generic would list 3 devices and 2 hosts"),
    "constraints of zones": ({}, "constrained", "generic would list 3 devices and 2 hosts"),
    "constraints of a composition": (
        COMPOSITION,
        "constrained",
        "composition would list 3 devices and 2 hosts",
    ),
}


@pytest.mark.parametrize(("form", "profile", "expected"), WRONG.values(), ids=WRONG)
async def test_an_empty_listing_names_the_profile_that_would_list_something(
    redfish_lab, form, profile, expected
):
    service = await redfish_lab.serve(**form)
    adapter = await redfish_lab.connect(service, parameters={"profile": profile})
    inventory = await adapter.devices()
    assert inventory.devices == ()
    assert inventory.oddities[0].startswith(f"profile: {expected}; ")
    assert {method for method, _ in service.requests} == {"GET"}


@pytest.mark.parametrize(("form", "profile", "expected"), REFUSED.values(), ids=REFUSED)
async def test_a_service_without_the_resources_of_a_profile_names_the_one_that_would_list_something(
    redfish_lab, form, profile, expected
):
    service = await redfish_lab.serve(**form)
    with pytest.raises(errors.Unimplemented, match=f"profile: {expected}"):
        await redfish_lab.connect(service, parameters={"profile": profile})


async def test_other_profiles_are_tried_once_for_a_connection(redfish_lab):
    service = await redfish_lab.serve(**APPLIANCE)
    adapter = await redfish_lab.connect(service, parameters={"profile": "connections"})
    first = await adapter.devices()
    after_first = len(service.requests)
    second = await adapter.devices()
    assert second.oddities == first.oddities
    assert len(service.requests) - after_first < after_first / 2


async def test_a_service_that_lists_something_is_read_by_its_own_profile_alone(redfish_lab):
    service = await redfish_lab.serve()
    adapter = await redfish_lab.connect(service)
    assert (await adapter.devices()).oddities == ()
    assert not any("CompositionService" in path for _, path in service.requests)


async def test_nothing_is_suggested_for_a_service_without_devices(redfish_lab):
    service = await redfish_lab.serve(enclosures=())
    adapter = await redfish_lab.connect(service)
    assert (await adapter.devices()).oddities == ()
