"""The address of a link, always on the configured origin."""

import pytest
import yarl

from drawbar.fabric.redfish import addresses

ORIGIN = "https://fm.example:8443"


@pytest.mark.parametrize(
    ("uri", "target"),
    [
        ("/redfish/v1/Systems/1", "/redfish/v1/Systems/1"),
        ("/redfish/v1/Systems?$skip=2", "/redfish/v1/Systems?$skip=2"),
        ("/redfish/v1/Systems/a%2Fb", "/redfish/v1/Systems/a%2Fb"),
        ("https://FM.EXAMPLE:8443/redfish/v1", "/redfish/v1"),
        ("http://10.0.0.1/redfish/v1/Tasks/1?x=%20", "/redfish/v1/Tasks/1?x=%20"),
        ("//other.example/redfish/v1", "/redfish/v1"),
        ("redfish/v1/Tasks/1", "/redfish/v1/Tasks/1"),
        ("/redfish/v1/Slashed", "/redfish/v1/Slashed/"),
        ("/redfish/v1/Slashed?x=1", "/redfish/v1/Slashed/?x=1"),
    ],
)
def test_a_link_is_followed_on_the_configured_origin(uri, target):
    known = addresses.Addresses(yarl.URL(ORIGIN))
    known.note(b'{"@odata.id": "/redfish/v1/Slashed/"}')
    assert known.resolve(uri) == yarl.URL(f"{ORIGIN}{target}", encoded=True)


@pytest.mark.parametrize(
    ("uri", "redirected"),
    [
        ("https://evil.example/latest/meta-data", False),
        ("https://evil.example/redfish/v1", True),
        ("https://user:word@fm.example:8443/redfish/v1", False),
        ("http://[::1/redfish", False),
        ("https://fm.example:99999/redfish/v1", False),
    ],
)
def test_a_link_to_elsewhere_is_refused(uri, redirected):
    with pytest.raises(addresses.Foreign, match=r"^sent one that"):
        addresses.Addresses(yarl.URL(ORIGIN)).resolve(uri, yarl.URL(ORIGIN) if redirected else None)


def test_the_memory_of_slashes_is_bounded():
    known = addresses.Addresses(yarl.URL(ORIGIN))
    for number in range(addresses.WRITTEN_MAX + 1):
        known.note(b'"/redfish/v1/%d/"' % number)
    assert known.resolve("/redfish/v1/0").path == "/redfish/v1/0"
    assert known.resolve("/redfish/v1/1").path == "/redfish/v1/1/"
