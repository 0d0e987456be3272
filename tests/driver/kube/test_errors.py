"""How a failed attempt that is repeated is logged."""

import logging

import pytest

from drawbar.driver.kube import errors


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (errors.Conflict, logging.INFO),
        (errors.AlreadyExists, logging.INFO),
        (errors.Denied, logging.WARNING),
        (errors.Invalid, logging.WARNING),
        (errors.Unreachable, logging.WARNING),
    ],
)
def test_a_lost_race_is_no_warning_and_a_refusal_is_one(error, level):
    assert errors.level(error("x")) == level
