"""The wording that messages share."""

import pytest

from drawbar.driver import wording


@pytest.mark.parametrize(
    ("texts", "separator", "expected"),
    [
        ((), ", ", ""),
        (("a", "b"), ", ", "a, b"),
        (("a", "b", "c"), ", ", "a, b and 1 more"),
        (("a", "b", "c", "d"), "; ", "a; b; and 2 more"),
    ],
)
def test_the_first_texts_are_named_and_the_others_counted(texts, separator, expected):
    assert wording.join_some(texts, 2, separator) == expected
