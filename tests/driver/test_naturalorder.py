"""The order of names and versions with numbers."""

import pytest

from drawbar.driver import naturalorder
from drawbar.driver.kube import localcopy
from drawbar.driver.node.attachments import initialisation

DIGITS = "1" * 5000
"""More digits than Python reads as a number."""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("gpu-2", "gpu-10"),
        ("chassis-2", "chassis-10/slot-1"),
        ("1a", "a1"),
        ("gpu", "gpu-1"),
        ("gpu-9", f"gpu-{DIGITS}"),
        (f"gpu-{DIGITS}", f"gpu-{DIGITS}1"),
        ("gpu-2", "gpu-²"),
        ("007", "8"),
    ],
)
def test_numbers_in_names_are_in_order(first, second):
    assert naturalorder.sort_key(first) < naturalorder.sort_key(second)


@pytest.mark.parametrize(("older", "newer"), [("9", f"9{DIGITS}"), ("1.9", f"1.{DIGITS}"), ("1.9", "1.²")])
def test_versions_of_any_length_and_script_are_compared(older, newer):
    assert initialisation.order(older) < initialisation.order(newer)


@pytest.mark.parametrize(
    ("version", "than", "is_later"),
    [("10", "9", True), ("9", "10", False), ("9", "9", False), (DIGITS, "9", True), ("²", "9", True)],
)
def test_resource_versions_of_any_length_are_compared(version, than, is_later):
    assert localcopy.is_later(version, than) is is_later
