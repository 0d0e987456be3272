"""The pytest plugin: fixtures whose names begin with `drawbar_`, and the marker that sets them up.

    @pytest.mark.drawbar(profile="1.34")
    def test_an_old_server(drawbar_apiserver):
        client = kubernetes.config.new_client_from_config(str(drawbar_apiserver.kubeconfig))

pytest loads this module in every project where the doubles are installed, so it imports the rest of
them only inside the fixtures.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from drawbar.mocks.testing import apiservers, clusters, fabrics, hosts

MARKER = "drawbar"
PROFILE_OPTION = "--drawbar-profile"
_MARKER_HELP = (
    "drawbar(profile, gates, nodes, daemons, fabric, slots, poll_seconds, faults): what the drawbar_* fixtures of this "
    "test are like"
)
_KEYS = frozenset({"profile", "gates", "nodes", "daemons", "fabric", "slots", "poll_seconds", "faults"})


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the imitated release; a marker overrides it."""
    group = parser.getgroup("drawbar", "doubles of Kubernetes and of a composable fabric")
    group.addoption(
        PROFILE_OPTION,
        default=None,
        metavar="RELEASE",
        help="the Kubernetes release that drawbar's doubles imitate (default: 1.36, or the ini value drawbar_profile)",
    )
    parser.addini("drawbar_profile", "the Kubernetes release that drawbar's doubles imitate", default="1.36")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARKER_HELP)


@pytest.fixture
def drawbar_apiserver(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[apiservers.RunningApiServer]:
    """Yield an empty API server in this process, for one test: `url`, `kubeconfig`, `account(...)`, `call(...)`.

    Marker: profile, gates.
    """
    from drawbar.mocks.testing import apiservers

    wanted = _merge_markers(request)
    folder = tmp_path_factory.mktemp("drawbar-apiserver")
    with apiservers.running(folder, profile=wanted["profile"], gates=wanted.get("gates")) as server:
        yield server


@pytest.fixture
def drawbar_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[clusters.RunningCluster]:
    """Yield a cluster of processes for one test: API server, scheduler, kubelets and fabric; Drawbar if daemons=True.

    Marker: profile, nodes, daemons, fabric, slots, poll_seconds, faults. It takes seconds to start; tests that can
    share one use `drawbar_session_cluster`.
    """
    from drawbar.mocks.testing import clusters

    with clusters.running(tmp_path_factory.mktemp("drawbar-cluster"), _merge_markers(request)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def drawbar_session_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[clusters.RunningCluster]:
    """Yield one cluster with one node and no daemons for all tests of the run.

    Define a fixture of this name for another.
    """
    from drawbar.mocks.testing import clusters

    with clusters.running(
        tmp_path_factory.mktemp("drawbar-cluster"), {"profile": _profile(request.config)}
    ) as cluster:
        yield cluster


@pytest.fixture
def drawbar_fabric(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[fabrics.RunningFabric]:
    """Yield a simulated fabric manager as a process, for one test: `endpoint`, `configuration`, `journal()`.

    Marker: fabric, a file or a dictionary as in `drawbar mock fabric --config`; without it one host and two devices.
    """
    from drawbar.mocks.testing import fabrics

    folder = tmp_path_factory.mktemp("drawbar-fabric")
    with fabrics.running(folder, _merge_markers(request).get("fabric")) as fabric:
        yield fabric


@pytest.fixture
def drawbar_sysfs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[hosts.MockedHost]:
    """Yield a host's /sys with empty slots, for one test: `tree.attach(slot, MockDevice(...))`, `uevents`.

    Marker: slots.
    """
    from drawbar.mocks.testing import hosts

    with ExitStack() as stack:
        yield stack.enter_context(
            hosts.mocking(tmp_path / "drawbar-sysfs", slots=_merge_markers(request).get("slots", 4))
        )


def _profile(config: pytest.Config) -> str:
    chosen = config.getoption(PROFILE_OPTION) or config.getini("drawbar_profile")
    return str(chosen)


def _merge_markers(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the settings of this test's markers; the nearest marker wins.

    Raises:
        pytest.UsageError: a marker has an unknown setting.
    """
    wanted: dict[str, Any] = {"profile": _profile(request.config)}
    for mark in reversed(list(request.node.iter_markers(MARKER))):
        unknown = sorted(mark.kwargs.keys() - _KEYS)
        if mark.args or unknown:
            reported = ", ".join([*map(repr, mark.args), *unknown])
            raise pytest.UsageError(
                f"{request.node.nodeid}: @pytest.mark.drawbar does not know {reported}: {_MARKER_HELP}"
            )
        wanted |= mark.kwargs
    return {
        key: os.fspath(value) if isinstance(value, os.PathLike) else value for key, value in wanted.items()
    }
