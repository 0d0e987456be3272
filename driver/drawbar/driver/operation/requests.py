"""Counts the requests to the API server."""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol, TypeVar

from drawbar.driver.kube import client, errors, kinds

T = TypeVar("T")

_RESULTS: tuple[tuple[type[errors.KubeError], str], ...] = (
    (errors.NotFound, "NotFound"),
    (errors.Conflict, "Conflict"),
    (errors.Expired, "Expired"),
    (errors.Denied, "Denied"),
    (errors.Invalid, "Invalid"),
    (errors.TooLarge, "TooLarge"),
    (errors.Throttled, "Throttled"),
    (errors.Unreachable, "Unreachable"),
)


class Counts(Protocol):
    """Who counts."""

    def request_done(self, verb: str, resource: str, result: str) -> None:
        """A request has ended; `resource` is the plural with its subresource, `result` is OK or an error's name."""
        ...


class CountingClient(client.Client):
    """A client that counts what goes through another one."""

    def __init__(self, inner: client.Client, counts: Counts) -> None:
        # Everything that a client sends goes through `request` and `watch`; nothing else of it needs a session.
        self._inner = inner
        self._counts = counts

    @property
    def server(self) -> str:
        """The API server's base URL."""
        return self._inner.server

    def hurried(self) -> client.Client:
        """See `client.Client.hurried`; counted too."""
        return CountingClient(self._inner.hurried(), self._counts)

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: object = None,
        content: str = "application/json",
        accept: str = "application/json",
    ) -> bytes:
        """See `client.Client.request`."""
        try:
            answer = await self._inner.request(method, path, query, body=body, content=content, accept=accept)
        except errors.KubeError as error:
            self._count(method, _resource(path), error)
            raise
        self._count(method, _resource(path), None)
        return answer

    async def watch(
        self,
        kind: kinds.Kind,
        *,
        into: type[T],
        resource_version: str,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
    ) -> AsyncIterator[client.WatchEvent[T]]:
        """See `client.Client.watch`; a watch counts when it ends."""
        try:
            async for event in self._inner.watch(
                kind,
                into=into,
                resource_version=resource_version,
                namespace=namespace,
                labels=labels,
                fields=fields,
            ):
                yield event
        except errors.KubeError as error:
            self._count("WATCH", kind.plural, error)
            raise
        self._count("WATCH", kind.plural, None)

    def _count(self, method: str, resource: str, error: errors.KubeError | None) -> None:
        result = "OK"
        if error is not None:
            result = next((name for kind, name in _RESULTS if isinstance(error, kind)), "Failed")
        self._counts.request_done(method, resource, result)


def _resource(path: str) -> str:
    """The resource in a path, with its subresource: `/apis/GROUP/VERSION[/namespaces/NS]/PLURAL[/NAME[/SUB]]`."""
    parts = path.strip("/").split("/")
    parts = parts[3:] if parts[0] == "apis" else parts[2:]
    if len(parts) > 2 and parts[0] == "namespaces":
        parts = parts[2:]
    match parts:
        case [plural, _, sub, *_]:
            return f"{plural}/{sub}"
        case [plural, *_]:
            return plural
        case _:
            return "other"
