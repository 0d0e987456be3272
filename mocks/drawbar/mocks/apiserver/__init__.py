"""A Kubernetes API server in memory, for tests and demonstrations: real HTTP, real semantics, no cluster.

It is built on aiohttp. kmock 0.8 serves lists, watches and plain patches well. But it has no server-side apply, field
ownership, schemas of custom resources, Tables or RBAC, and the driver depends on these.

Limits: no mutating admission and webhooks, quotas, service accounts' defaults, expiry of tokens, client certificates,
aggregated and protobuf discovery, protobuf bodies beyond kubectl's, OpenAPI v2, pods/exec and logs, conversion between
differing versions of a custom resource, aggregated roles, or API priority and fairness. The ``v1beta1`` and
``v1beta2`` forms of slices and claims are missing too; the imitated releases do not serve them by default. The modules
list their own limits.
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
