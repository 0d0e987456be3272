"""The record of writes, for tests that count them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass

LIMIT = 10_000  # the number of writes kept one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One request for a change; ``code`` is the HTTP status of its answer."""

    method: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    user: str
    manager: str
    dry_run: bool
    code: int


class WriteLog:
    """The latest writes one by one, and counters of all."""

    def __init__(self) -> None:
        """Start empty."""
        self._last: deque[Write] = deque(maxlen=LIMIT)
        self.totals: Counter[tuple[str, str, str]] = (
            Counter()
        )  # successful real ones by (verb, resource, user)

    def record(self, write: Write) -> None:
        """Add a write."""
        self._last.append(write)
        if write.code < 300 and not write.dry_run:
            full = f"{write.resource}/{write.subresource}" if write.subresource else write.resource
            self.totals[write.verb, full, write.user] += 1

    def __iter__(self) -> Iterator[Write]:
        return iter(list(self._last))

    def __len__(self) -> int:
        return len(self._last)

    def clear(self) -> None:
        """Forget everything, to count from now on."""
        self._last.clear()
        self.totals.clear()

    def count(
        self,
        *,
        verb: str | None = None,
        resource: str | None = None,
        subresource: str | None = None,
        user: str | None = None,
        manager: str | None = None,
        dry_run: bool = False,
    ) -> int:
        """Return the number of successful matching writes in the record; None matches everything."""
        return sum(
            write.code < 300
            and write.dry_run == dry_run
            and (verb is None or write.verb == verb)
            and (resource is None or write.resource == resource)
            and (subresource is None or write.subresource == subresource)
            and (user is None or write.user == user)
            and (manager is None or write.manager == manager)
            for write in self._last
        )
