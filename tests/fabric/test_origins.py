"""Origins: every program that reads an endpoint connects to the origin that is read here."""

from urllib.parse import urlsplit

import pytest
import yarl
from hypothesis import given
from hypothesis import strategies as st

from drawbar.fabric import origins


@pytest.mark.parametrize(
    ("endpoint", "origin"),
    [
        ("https://bmc.example.com", "https://bmc.example.com:443"),
        ("https://BMC.example.com:443/redfish/v1", "https://bmc.example.com:443"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("tls://plugin:8443", "tls://plugin:8443"),
        ("https://[FD00:0::1]:8443", "https://[fd00::1]:8443"),
        ("unix:/run/drawbar/a/a.sock", "unix:/run/drawbar/a/a.sock"),
        ("unix:/run/drawbar/b/../a/a.sock", "unix:/run/drawbar/b/../a/a.sock"),
        ("file:/etc/fabric.json", "file:/etc/fabric.json"),
        ("rack-7", "rack-7"),
        ("https://bmc:443@evil", None),
        ("https://bmc:443/@evil", None),
        ("https://bmc:443\\@evil", None),
        ("https://bmc:443/\\evil", None),
        ("https://bmc#@evil", None),
        ("https://bmc?@evil", None),
        ("https://bmc%2eevil", None),
        ("https://bmc\u3002evil", None),
        ("https://bmc:0", None),
        ("https://bmc:65536", None),
        ("https://bmc:+1", None),
        ("https://[::1%25eth0]", None),
        ("https://[bmc]", None),
        ("https://", None),
        ("https:///bmc", None),
        ("tls://plugin", None),
        (" https://bmc", None),
        ("https://bmc\n", None),
        ("unix:///run/a.sock", None),
        ("rack 7\u202e", None),
        ("", None),
        ("x" * 1025, None),
    ],
)
def test_an_endpoint_has_one_origin_or_none(endpoint, origin):
    assert origins.find_origin(endpoint) == origin


def test_an_origin_is_no_more_than_an_origin():
    assert origins.parse("https://bmc:443/redfish/v1") is None
    assert origins.parse("HTTPS://bmc/") == "https://bmc:443"
    assert origins.host("https://bmc:443") == "bmc"
    assert origins.host("https://[fd00::1]:443") == "fd00::1"
    assert origins.host("unix:/run/a.sock") == ""


PIECES = st.sampled_from(
    [
        "https://",
        "http://",
        "HTTPS:",
        "//",
        "/",
        "\\",
        "@",
        ":",
        "443",
        "80",
        "#",
        "?",
        "%2f",
        "%40",
        "[",
        "]",
        "::1",
        "good",
        "evil",
        ".",
        "good.example.com",
        "\t",
        "\n",
        " ",
        "\u3002",
        "\uff0f",
        ";",
        "0",
        "unix:",
        "..",
    ]
)


@given(st.lists(PIECES, max_size=10).map("".join))
def test_the_libraries_that_connect_read_no_other_host_or_port(endpoint):
    origin = origins.find_origin(endpoint)
    if origin is None or not origin.startswith(("http://", "https://")):
        return
    read = yarl.URL(endpoint)
    assert (read.host, read.port, read.user) == (origins.host(origin), int(origin.rpartition(":")[2]), None)
    parts = urlsplit(endpoint)
    assert (parts.hostname, parts.username) == (origins.host(origin), None)
    assert origins.find_origin(origin) == origin == origins.parse(origin)
