"""Any adapter as a fabric plugin: the server's side of fabric.proto.

An adapter in Python gets its sidecar from this module; the simulated fabric uses it too.
"""

import asyncio
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from drawbar.fabric import contract, errors
from drawbar.fabric.grpc import certificates, endpoints, services, starting
from drawbar.proto.fabric.v1alpha1 import fabric_pb2_grpc as pb_grpc

STOP_SECONDS = 1.0
"""The grace for running calls when the server stops; then watches end."""
PROBE_SECONDS = 1.0


@asynccontextmanager
async def serving(
    adapter: contract.FabricAdapter,
    endpoint: str,
    *,
    name: str,
    version: str,
    configure: services.Configure | None = None,
    files: certificates.ServerFiles | None = None,
) -> AsyncIterator[str]:
    """Serve the adapter at `unix:/absolute/path`, or at `tls://HOST:PORT` with `files`; yield the endpoint.

    The server accepts connections as soon as the context is entered; for port 0 the kernel chooses one. The caller
    closes the adapter. The socket file is replaced if no process serves it, and removed at the end; its mode follows
    the umask. `configure` receives a caller's credentials; without it, they are refused.

    Raises:
        InvalidConfiguration: the endpoint cannot be used; all problems are listed.
    """
    problems = endpoints.problems(endpoint)
    is_network = endpoints.is_network(endpoint)
    if not problems and is_network != (files is not None):
        problems = (f"certificates go with an endpoint {endpoints.TLS_PREFIX}HOST:PORT; give both or none",)
    if not (problems or is_network):
        problems = await _obstacles(endpoints.socket_path(endpoint))
    if problems:
        raise errors.InvalidConfiguration(problems)
    shown = await asyncio.to_thread(files.credentials) if files is not None else None
    server = grpc.aio.server()
    pb_grpc.add_IdentityServicer_to_server(
        services.Identity(adapter, name=name, version=version, configure=configure), server
    )
    pb_grpc.add_FabricManagerServicer_to_server(services.FabricManager(adapter), server)
    try:
        if shown is None:
            server.add_insecure_port(endpoint)
        else:
            port = server.add_secure_port(endpoints.host_and_port(endpoint), shown)
            endpoint = f"{endpoint.rpartition(':')[0]}:{port}"
    except RuntimeError as error:
        raise errors.InvalidConfiguration([f"cannot listen at {endpoint}: {error}"]) from error
    try:
        await starting.start(server)
        yield endpoint
    finally:
        await server.stop(STOP_SECONDS)


async def _obstacles(path: Path) -> tuple[str, ...]:
    """Return the obstacles to listening at a path. gRPC itself would replace a socket in use."""
    obstacle = await asyncio.to_thread(_foreign_file, path)
    if obstacle:
        return obstacle
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            _, writer = await asyncio.open_unix_connection(path)
    except (ConnectionError, FileNotFoundError):
        return ()
    except (TimeoutError, OSError) as error:
        return (f"{path} may be in use ({error}); stop the other process or choose another path",)
    writer.close()
    await writer.wait_closed()
    return (f"another process serves {path}; stop it or choose another path",)


def _foreign_file(path: Path) -> tuple[str, ...]:
    """Return the faults of the file system at a path: a missing directory, or a file that is no socket."""
    if not path.parent.is_dir():
        return (f"the directory {path.parent} does not exist; create it",)
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return ()
    except OSError as error:
        return (f"{path} cannot be used: {error.strerror}",)
    if not stat.S_ISSOCK(mode):
        return (f"{path} exists and is not a socket; remove it or choose another path",)
    return ()
