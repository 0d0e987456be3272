import contextlib

import msgspec
import pytest

from drawbar.driver.api import fabrics
from drawbar.driver.cli.ui import explaining, following, server


@pytest.fixture
def serve_page():
    """Return a function; `async with serve_page(api) as (url, latest)` serves the page of a cluster."""

    @contextlib.asynccontextmanager
    async def serve(api):
        explain = explaining.Explainer(api, driver="drawbar.dev", namespace="drawbar").explain
        with server.listening() as bound:
            async with (
                following.following(api, driver="drawbar.dev") as latest,
                server.serving(latest, bound, explain) as url,
            ):
                yield url, latest

    return serve


@pytest.fixture
def fabric_object():
    """Make a Fabric."""

    def make(name):
        body = {"metadata": {"name": name}, "spec": {"adapter": "grpc", "endpoint": "unix:/run/f.sock"}}
        return msgspec.convert(body, fabrics.Fabric)

    return make
