"""The sockets that the kubelet looks for."""

import asyncio
import contextlib
import os
import socket
import tempfile
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scenes.verdicts import Verdicts

from drawbar.driver.node import errors
from drawbar.driver.node.plugin import server, sockets
from drawbar.proto.kubelet.pluginregistration.v1 import api_pb2, api_pb2_grpc

DRIVER = "drawbar.dev"


class Nothing:
    """A preparation that is never asked."""

    async def prepare(self, claim):
        raise AssertionError

    async def unprepare(self, claim):
        raise AssertionError


@contextlib.contextmanager
def binding(path, *, alive):
    """Bind a socket at that path, of a server that lives or is dead."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        if alive:
            listener.listen()
            yield
        else:
            listener.close()
            yield


def test_each_instance_has_sockets_of_its_own(tmp_path):
    alone, instance = sockets.paths(Path("/k"), DRIVER, ""), sockets.paths(Path("/k"), DRIVER, "uid-1")
    assert str(alone.registration) == "/k/plugins_registry/drawbar.dev-reg.sock"
    assert str(alone.service) == "/k/plugins/drawbar.dev/dra.sock"
    assert str(instance.registration) == "/k/plugins_registry/drawbar.dev-uid-1-reg.sock"
    assert str(instance.service) == "/k/plugins/drawbar.dev/dra-uid-1.sock"


def lengths(where):
    return [len(os.fsencode(path)) for path in (where.registration, where.service)]


# Of the default directory, and so long that both names have to be shortened, in two steps.
KUBELET = Path("/var/lib/kubelet")
UID = "0f1f3d60-6b1c-4a4e-9a3e-0c6f3b6b2f11"


@pytest.mark.parametrize(
    ("driver", "registration", "service"),
    [
        pytest.param(DRIVER, f"{DRIVER}-{UID}-reg.sock", f"dra-{UID}.sock", id="as-it-is"),
        pytest.param("d" * 27, f"{'d' * 27}-{UID}-reg.sock", f"dra-{UID}.sock", id="both-just-fit"),
        pytest.param("d" * 28, f"{'d' * 28}-4o8He6U09yo-reg.sock", f"dra-{UID}.sock", id="one-too-long"),
        pytest.param(
            "d" * 37, f"{'d' * 37}-4o8He6U09yo-reg.sock", "dra-4o8He6U09yo.sock", id="both-too-long"
        ),
        pytest.param(
            "d" * 63, "dra-3C0PGJ8SNfA-4o8He6U09yo-reg.sock", "4o8He6U09yo.sock", id="even-without-uid"
        ),
    ],
)
def test_names_that_are_too_long_are_shortened_each_for_itself(driver, registration, service):
    where = sockets.paths(KUBELET, driver, UID)
    assert (where.registration.name, where.service.name) == (registration, service)
    assert max(lengths(where)) <= 107


@given(
    driver=st.from_regex(r"[a-z0-9]{1,63}", fullmatch=True),
    kubelet=st.integers(1, 110),
    instance=st.sampled_from(["", UID]),
)
def test_a_path_is_never_longer_than_107_bytes_and_is_refused_with_the_remedy_instead(
    driver, kubelet, instance
):
    folder = Path("/" + "k" * kubelet)
    if kubelet > 95:
        with pytest.raises(errors.SocketError, match="--kubelet-dir or --driver-name"):
            sockets.paths(folder, driver, instance)
        return
    with contextlib.suppress(errors.SocketError):
        where = sockets.paths(folder, driver, instance)
        assert max(lengths(where)) <= 107
        assert where.registration != where.service
        return
    assert kubelet > 20, "there was room"


def test_the_longest_that_fits_is_taken_as_it_is():
    folder = Path("/" + "k" * (107 - len("//plugins_registry/drawbar.dev-reg.sock")))
    where = sockets.paths(folder, DRIVER, "")
    assert lengths(where)[0] == 107
    assert where.registration.name == f"{DRIVER}-reg.sock"


def test_two_instances_never_share_a_shortened_path():
    names = [sockets.paths(KUBELET, "d" * 63, uid) for uid in (UID, UID[::-1], "")]
    assert len({path for where in names for path in (where.registration, where.service)}) == 6


def test_bytes_count_and_not_characters():
    with pytest.raises(errors.SocketError):
        sockets.paths(Path("/") / ("ä" * 50), DRIVER, "")


@pytest.mark.parametrize("uid", [UID, ""])
def test_sockets_with_shortened_names_are_swept_as_well(uid):
    driver = "d" * 63
    where = sockets.paths(KUBELET, driver, uid)
    # A test's own directory is too deep for a socket.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="d") as folder:
        for path in (where.registration, where.service):
            short = Path(folder) / path.relative_to(KUBELET)
            with binding(short, alive=False):
                sockets.sweep(Path(folder), driver)
                assert not short.exists()


@pytest.mark.parametrize(
    "name",
    [
        "plugins_registry/drawbar.dev-uid-9-reg.sock",
        "plugins_registry/drawbar.dev-reg.sock",
        "plugins/drawbar.dev/dra-uid-9.sock",
    ],
)
def test_the_sockets_of_a_dead_instance_are_swept(tmp_path, name):
    with binding(tmp_path / name, alive=False):
        sockets.sweep(tmp_path, DRIVER)
        assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("name", "alive"),
    [
        pytest.param("plugins_registry/drawbar.dev-uid-9-reg.sock", True, id="alive"),
        pytest.param("plugins/drawbar.dev/dra-uid-9.sock", True, id="alive-service"),
        pytest.param("plugins_registry/other.dev-reg.sock", False, id="of-another-driver"),
        pytest.param("plugins/other.dev/dra.sock", False, id="service-of-another-driver"),
    ],
)
def test_live_and_foreign_sockets_are_not_swept(tmp_path, name, alive):
    with binding(tmp_path / name, alive=alive):
        sockets.sweep(tmp_path, DRIVER)
        assert (tmp_path / name).exists()


def test_a_plain_file_is_no_socket_and_stays(tmp_path):
    path = tmp_path / "plugins_registry" / "drawbar.dev-reg.sock"
    path.parent.mkdir()
    path.write_text("")
    sockets.sweep(tmp_path, DRIVER)
    assert path.exists()


def test_there_is_nothing_to_sweep_where_there_is_no_directory(tmp_path):
    sockets.sweep(tmp_path / "none", DRIVER)


async def test_the_kubelet_finds_the_service_through_the_registration(tmp_path):
    where = sockets.paths(tmp_path, DRIVER, "u")
    async with server.serving(DRIVER, where, Nothing(), Verdicts()):
        assert {oct(path.stat().st_mode & 0o777) for path in (where.registration, where.service)} == {"0o700"}
        async with grpc.aio.insecure_channel(f"unix:{where.registration}") as channel:
            stub = api_pb2_grpc.RegistrationStub(channel)
            info = await stub.GetInfo(api_pb2.InfoRequest(), timeout=120)
    assert (info.type, info.name, info.endpoint) == ("DRAPlugin", DRIVER, str(where.service))
    assert list(info.supported_versions) == [
        "v1.DRAPlugin",
        "v1beta1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
        "1.0.0",
    ]
    assert not where.registration.exists()
    assert not where.service.exists()


async def test_the_sockets_of_a_killed_instance_are_taken_over(tmp_path):
    where = sockets.paths(tmp_path, DRIVER, "")
    with binding(where.registration, alive=False), binding(where.service, alive=False):
        async with server.serving(DRIVER, where, Nothing(), Verdicts()):
            assert where.registration.is_socket()


async def test_a_second_instance_on_the_same_paths_is_refused_and_the_first_lives_on(tmp_path):
    where = sockets.paths(tmp_path, DRIVER, "")
    async with server.serving(DRIVER, where, Nothing(), Verdicts()):
        with pytest.raises(errors.SocketError, match="POD_UID"):
            async with server.serving(DRIVER, where, Nothing(), Verdicts()):
                pass
        assert where.registration.is_socket()
        _, writer = await asyncio.open_unix_connection(where.service)
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("obstacle", ["plugins_registry", "plugins"])
async def test_an_impossible_directory_is_reported_with_a_remedy(tmp_path, obstacle):
    (tmp_path / obstacle).write_text("in the way")
    with pytest.raises(errors.SocketError, match="mount"):
        async with server.serving(DRIVER, sockets.paths(tmp_path, DRIVER, ""), Nothing(), Verdicts()):
            pass


@pytest.mark.parametrize("which", ["registration", "service"])
async def test_an_obstacle_at_a_socket_path_is_reported_and_no_socket_is_left(tmp_path, which):
    where = sockets.paths(tmp_path, DRIVER, "")
    path = getattr(where, which)
    path.parent.mkdir(parents=True)
    path.mkdir()
    (path / "full").write_text("")
    with pytest.raises(errors.SocketError, match="cannot listen on"):
        async with server.serving(DRIVER, where, Nothing(), Verdicts()):
            pass
    assert [entry for folder, _, names in os.walk(tmp_path) for entry in names if entry != "full"] == []
