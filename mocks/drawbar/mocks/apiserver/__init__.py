"""A Kubernetes API server in memory, for tests and demonstrations: real HTTP, real semantics, no cluster.

It is built on aiohttp and not on kmock, which was looked at first.  kmock 0.8 serves lists, watches and
plain patches well, but has no server-side apply, field ownership, schemas of custom resources, Tables or
RBAC, and these are what this driver's behaviour depends on.

What it does not emulate: mutating admission and webhooks, quotas, service accounts' defaults, the expiry of
tokens, client certificates, aggregated and protobuf discovery, protobuf bodies beyond kubectl's, OpenAPI v2,
pods/exec and logs, conversion between differing versions of a custom resource, aggregated roles, API priority
and fairness, parameters of admission policies, and the ``v1beta1`` and ``v1beta2`` forms of slices and claims,
which the releases imitated here do not serve by default either.  The modules say where they stop.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drawbar.mocks.apiserver.server import ApiServer, serving
    from drawbar.mocks.apiserver.writes import Write, WriteLog

__all__ = ["ApiServer", "Write", "WriteLog", "serving"]


def __getattr__(name: str) -> Any:
    """Import the server on first access: a caller that reads only the list of profiles does not load it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from drawbar.mocks.apiserver import server, writes

    return getattr(writes if name.startswith("Write") else server, name)
