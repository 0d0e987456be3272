"""Kubernetes quantities, read and written."""

import pytest

from drawbar.driver.api import quantities


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
    [(0, "0"), (1000, "1000"), (80 * 1024**3, "80Gi"), (1536, "1536"), (3 * 1024, "3Ki")],
)
def test_quantities_are_canonical(amount, text):
    assert quantities.format_bytes(amount) == text
