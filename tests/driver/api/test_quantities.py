"""Kubernetes quantities, read and written."""

import pytest

from drawbar.driver.api import quantities
from drawbar.mocks.apiserver import quantities as apiserver_quantities


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("80Gi", 80 * 1024**3),
        ("1.5", 1.5),
        ("100m", 0.1),
        ("2k", 2000),
        ("-1", -1),
        (".5Ki", 512),
        ("1E", 10**18),
    ],
)
def test_a_quantity_is_a_number(text, value):
    assert quantities.parse(text) == value


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1GiB", "Gi"])
def test_an_invalid_quantity_is_refused(text):
    with pytest.raises(ValueError, match="is not a quantity"):
        quantities.parse(text)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0"),
        (1000, "1k"),
        (80 * 1024**3, "80Gi"),
        (1536, "1536"),
        (3 * 1024, "3Ki"),
        (375 * 10**9, "375G"),
        (2**62, "4Ei"),
        (2**70, "9223372036854775807"),
    ],
)
def test_quantities_are_canonical(amount, text):
    assert quantities.format_bytes(amount) == text


@pytest.mark.parametrize(
    "amount", [0, 1, 999, 1000, 1023, 10**9, 10**12, 2**62, 2**63, 2**64 - 1, 10**20, 2**83]
)
def test_the_api_server_keeps_an_amount_of_any_size_as_it_is_written(amount):
    assert apiserver_quantities.canonical(quantities.format_bytes(amount)) == quantities.format_bytes(amount)
