"""Which addresses an adapter may connect to."""

import pytest

from drawbar.fabric.contract import Networks


@pytest.mark.parametrize(
    "address", ["10.1.2.3", "192.168.1.1", "8.8.8.8", "fd00::1", "2001:db8::1", "64:ff9b::a01:203"]
)
def test_managers_may_be_anywhere_in_a_network(address):
    assert Networks().permits(address)


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.0.1",
        "fe80::1",
        "fe80::1%eth0",
        "127.0.0.1",
        "127.9.9.9",
        "::1",
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "ff02::1",
        "::ffff:169.254.169.254",
        "::ffff:127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "fd00:ec2::254",
        "168.63.129.16",
        "100.100.100.200",
        "192.0.0.192",
        "localhost",
        "",
    ],
)
def test_the_machine_its_link_and_metadata_services_are_refused(address):
    assert not Networks().permits(address)


def test_networks_that_are_named_are_the_only_ones():
    networks = Networks.parse(["10.1.0.0/16", "127.0.0.0/8"])
    assert [
        address
        for address in ("10.1.2.3", "127.0.0.1", "::ffff:10.1.2.3", "10.2.0.1", "::1", "8.8.8.8")
        if networks.permits(address)
    ] == [
        "10.1.2.3",
        "127.0.0.1",
        "::ffff:10.1.2.3",
    ]
    with pytest.raises(ValueError, match="host bits"):
        Networks.parse(["10.1.0.1/16"])
