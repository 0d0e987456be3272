"""The sockets that the kubelet looks for."""

import asyncio
import contextlib
import os
import socket
from pathlib import Path

import grpc
import pytest

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
def bound(path, *, alive):
    """A socket at that path, of a server that lives or is dead."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as found:
        found.bind(str(path))
        if alive:
            found.listen()
            yield
        else:
            found.close()
            yield


def exactly(folder: Path, length: int) -> Path:
    """A directory whose registration socket's path has that many bytes."""
    rest = length - len(str(sockets.paths(folder, DRIVER, "").registration))
    return folder / ("k" * (rest - 1))


def test_each_instance_has_sockets_of_its_own(tmp_path):
    alone, one = sockets.paths(Path("/k"), DRIVER, ""), sockets.paths(Path("/k"), DRIVER, "uid-1")
    assert str(alone.registration) == "/k/plugins_registry/drawbar.dev-reg.sock"
    assert str(alone.service) == "/k/plugins/drawbar.dev/dra.sock"
    assert str(one.registration) == "/k/plugins_registry/drawbar.dev-uid-1-reg.sock"
    assert str(one.service) == "/k/plugins/drawbar.dev/dra-uid-1.sock"


def test_a_path_of_107_bytes_is_taken_and_one_of_108_is_refused_with_the_remedy():
    folder = Path("/k")
    longest = sockets.paths(exactly(folder, 107), DRIVER, "")
    assert len(str(longest.registration)) == 107
    with pytest.raises(errors.SocketError, match="108 bytes") as refused:
        sockets.paths(exactly(folder, 108), DRIVER, "")
    assert "--kubelet-dir or --driver-name" in str(refused.value)


def test_bytes_count_and_not_characters():
    with pytest.raises(errors.SocketError):
        sockets.paths(Path("/") / ("ä" * 50), DRIVER, "")


@pytest.mark.parametrize("name", ["drawbar.dev-uid-9-reg.sock", "drawbar.dev-reg.sock"])
def test_the_registration_of_a_dead_instance_is_swept(tmp_path, name):
    path = tmp_path / "plugins_registry" / name
    with bound(path, alive=False):
        sockets.sweep(tmp_path, DRIVER)
        assert not path.exists()


def test_the_service_of_a_dead_instance_is_swept(tmp_path):
    path = tmp_path / "plugins" / DRIVER / "dra-uid-9.sock"
    with bound(path, alive=False):
        sockets.sweep(tmp_path, DRIVER)
        assert not path.exists()


@pytest.mark.parametrize(
    ("name", "alive"),
    [
        pytest.param("plugins_registry/drawbar.dev-uid-9-reg.sock", True, id="alive"),
        pytest.param("plugins/drawbar.dev/dra-uid-9.sock", True, id="alive-service"),
        pytest.param("plugins_registry/other.dev-reg.sock", False, id="of-another-driver"),
        pytest.param("plugins/other.dev/dra.sock", False, id="service-of-another-driver"),
    ],
)
def test_what_lives_or_belongs_to_others_is_not_swept(tmp_path, name, alive):
    with bound(tmp_path / name, alive=alive):
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
    async with server.serving(DRIVER, where, Nothing()):
        assert {oct(path.stat().st_mode & 0o777) for path in (where.registration, where.service)} == {"0o700"}
        async with grpc.aio.insecure_channel(f"unix:{where.registration}") as channel:
            stub = api_pb2_grpc.RegistrationStub(channel)
            info = await stub.GetInfo(api_pb2.InfoRequest(), timeout=20)
    assert (info.type, info.name, info.endpoint) == ("DRAPlugin", DRIVER, str(where.service))
    assert "v1.DRAPlugin" in info.supported_versions
    assert not where.registration.exists()
    assert not where.service.exists()


async def test_the_sockets_of_a_killed_instance_are_taken_over(tmp_path):
    where = sockets.paths(tmp_path, DRIVER, "")
    with bound(where.registration, alive=False), bound(where.service, alive=False):
        async with server.serving(DRIVER, where, Nothing()):
            assert where.registration.is_socket()


async def test_a_second_instance_on_the_same_paths_is_refused_and_the_first_lives_on(tmp_path):
    where = sockets.paths(tmp_path, DRIVER, "")
    async with server.serving(DRIVER, where, Nothing()):
        with pytest.raises(errors.SocketError, match="POD_UID"):
            async with server.serving(DRIVER, where, Nothing()):
                pass
        assert where.registration.is_socket()
        _, writer = await asyncio.open_unix_connection(where.service)
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("obstacle", ["plugins_registry", "plugins"])
async def test_a_directory_that_cannot_be_made_is_said_with_the_remedy(tmp_path, obstacle):
    (tmp_path / obstacle).write_text("in the way")
    with pytest.raises(errors.SocketError, match="mount"):
        async with server.serving(DRIVER, sockets.paths(tmp_path, DRIVER, ""), Nothing()):
            pass


@pytest.mark.parametrize("which", ["registration", "service"])
async def test_a_plain_file_in_the_way_is_said_and_no_socket_is_left(tmp_path, which):
    where = sockets.paths(tmp_path, DRIVER, "")
    path = getattr(where, which)
    path.parent.mkdir(parents=True)
    path.mkdir()
    (path / "full").write_text("")
    with pytest.raises(errors.SocketError, match="cannot listen on"):
        async with server.serving(DRIVER, where, Nothing()):
            pass
    assert [entry for folder, _, names in os.walk(tmp_path) for entry in names if entry != "full"] == []
