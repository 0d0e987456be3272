import pytest

from drawbar.fabric.redfish import profiles
from drawbar.fabric.redfish.documents import Document

LINK = {"@odata.id": "/redfish/v1/X"}


@pytest.mark.parametrize(
    ("root", "name"),
    [
        ({}, "generic"),
        ({"Fabrics": LINK}, "generic"),
        ({"Fabrics": LINK, "CompositionService": LINK}, "generic"),
        ({"CompositionService": LINK}, "composition"),
        ({"Product": "H3 Falcon 4016", "Fabrics": LINK}, "h3"),
        ({"Product": "Falcon 5012", "Fabrics": LINK}, "h3"),
        ({"Vendor": "H3 Platform"}, "h3"),
        ({"Product": "Sunfish 0.1", "CompositionService": LINK}, "sunfish"),
        ({"Vendor": "OpenFabrics Alliance"}, "sunfish"),
        ({"Product": "Memory Appliance Composer & Fabric Manager Redfish Service", "Fabrics": LINK}, "cma"),
        ({"Product": 7, "Vendor": None, "Fabrics": LINK}, "generic"),
    ],
)
def test_the_service_root_shows_the_profile(root, name):
    assert profiles.choose_by_root(Document(uri="/redfish/v1", body=root)) == name


@pytest.mark.parametrize(
    ("fabrics", "name"),
    [
        ([], "generic"),
        ([{"Connections": LINK}], "connections"),
        ([{"Connections": LINK, "Zones": LINK}], "generic"),
        ([{"Connections": LINK}, {"Zones": LINK}], "generic"),
    ],
)
def test_fabrics_with_connections_and_no_zones_show_the_profile(fabrics, name):
    documents = [Document(uri="/redfish/v1/Fabrics/F", body=body) for body in fabrics]
    assert profiles.choose_by_fabrics(documents) == name


def test_no_product_belongs_to_two_profiles():
    products = [product for profile in profiles.PROFILES.values() for product in profile.products]
    assert len(products) == len(set(products))
    assert all(product == product.lower() for product in products)


def counts(devices, hosts):
    return profiles.Counts(devices=devices, hosts=hosts)


SUGGESTED = {
    "nothing read": ({}, ""),
    "nothing listed": ({name: counts(0, 0) for name in profiles.PROFILES}, ""),
    "hosts alone": ({"generic": counts(0, 3)}, ""),
    **{
        f"{name} alone": (
            {name: counts(12, 4)},
            f"profile: {name} would list 12 devices and 4 hosts; set the parameter `profile: {name}`",
        )
        for name in profiles.PROFILES
    },
    "one of each": ({"cma": counts(1, 1)}, "profile: cma would list 1 device and 1 host;"),
    "no host for the first": (
        {"generic": counts(9, 0), "cma": counts(3, 2)},
        "profile: cma would list 3 devices and 2 hosts;",
    ),
    "fabrics before composition": (
        {"composition": counts(12, 1), "cma": counts(3, 2)},
        "profile: cma would list 3 devices and 2 hosts;",
    ),
    "no host at all": ({"generic": counts(9, 0)}, "profile: generic would list 9 devices and 0 hosts;"),
}


@pytest.mark.parametrize(("listed", "expected"), SUGGESTED.values(), ids=SUGGESTED)
def test_the_profile_that_would_list_something_is_suggested(listed, expected):
    suggestion = profiles.suggest(listed)
    assert suggestion.startswith(expected)
    assert bool(suggestion) == bool(expected)
