"""A cluster for each test: see `tests.driver.flows.lab.Lab`."""

import functools

import pytest
from tests.driver.flows import lab, sites


@pytest.fixture(scope="session", autouse=True)
def _components():
    """End the real components that tests have started."""
    yield
    sites.close()


@pytest.fixture
def flow_lab():
    """Return a context manager: `async with flow_lab(profile) as cluster`; see `Lab`.

    The pool may not be published yet."""
    return functools.partial(lab.lab)
