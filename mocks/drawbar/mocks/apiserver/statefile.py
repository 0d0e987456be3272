"""A server's objects on disk, so that the next process can continue after a kill.

The file is a log of JSON lines. The first line describes the server (port, certificate). Every token, stored object
and removal follows, appended before the request is answered. When a server opens the file, and whenever the log is
much longer than the live objects, it is replaced by the live content through a temporary file.

Guarantees: after SIGKILL every acknowledged write is kept, with its uid and resourceVersion; an incomplete line
belongs to an unanswered request. Limits: the history of watches (older resourceVersions get 410), the faults and the
record of writes are not kept. Lines are not synced one by one, so a power failure may lose the last seconds. The file
contains tokens and the private key and has mode 0600; only one server at a time may use it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self, TypeAlias

import msgspec

from drawbar.mocks.apiserver import errors
from drawbar.mocks.apiserver.storage import Key, StorageKey, Store

Json = dict[str, Any]
FORMAT = 1
_SLACK_LINES = 10_000  # the excess over the live lines at which the log is rewritten


class Identity(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="drawbar-apiserver"):
    """The first line; the PEM texts are empty for a server without TLS."""

    format: int = FORMAT
    port: int = 0
    version: int = 1
    certificate: str = ""
    key: str = ""


class Token(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="token"):
    """An issued token and its caller (the arguments of ``ApiServer.token_for``)."""

    token: str
    user: str
    node: str = ""


class Put(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="put"):
    """A stored object."""

    where: StorageKey
    version: int
    item: Json


class Removed(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="removed"):
    """A removed object."""

    where: StorageKey
    version: int
    key: Key


_Record: TypeAlias = Identity | Token | Put | Removed


class StateError(Exception):
    """The state file cannot be used; the text is one sentence."""


class StateFile:
    """An open state file.

    Attributes:
        identity: the server's description in the file.
        tokens: the tokens issued so far.
    """

    def __init__(self, path: Path, identity: Identity, tokens: list[Token], puts: list[Put]) -> None:
        """Keep the file's content; ``resume`` loads the objects into a store and starts the log."""
        self.identity = identity
        self.tokens = tokens
        self._path = path
        self._puts = puts
        self._descriptor = -1
        self._size = 0
        self._lines = 0
        self._store: Store | None = None

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: Path) -> Iterator[Self]:
        """Yield the open file until the block ends; create it if there is none.

        Raises:
            StateError: it is in use, damaged, or another kind of file.
            OSError: it cannot be read or written.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(descriptor, path)
            with os.fdopen(os.dup(descriptor), "rb") as file:
                identity, tokens, puts = _replay(_records(file.read(), path), path)
            state_file = cls(path, identity, tokens, puts)
            try:
                yield state_file
            finally:
                state_file.close()
        finally:
            os.close(descriptor)

    def resume(self, store: Store, identity: Identity) -> None:
        """Fill a store with the kept objects, and record its changes from now on.

        Raises:
            OSError: the file cannot be written.
        """
        for put in self._puts:
            store.load(put.where, put.item, put.version)
        store.version = max(store.version, self.identity.version)
        store.restart()
        self._puts = []
        self.identity = identity
        self._store = store
        self._rewrite()
        store.keep = self._keep

    def add_token(self, token: Token) -> None:
        """Record an issued token.

        Raises:
            ApiError: 500, the file cannot be written.
        """
        self.tokens.append(token)
        self._append(token)

    def close(self) -> None:
        """Stop recording, and close the file."""
        if self._store is not None:
            self._store.keep = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _keep(self, where: StorageKey, key: Key, item: Json | None, version: int) -> None:
        if item is None:
            self._append(Removed(where=where, version=version, key=key))
        else:
            self._append(Put(where=where, version=version, item=item))

    def _append(self, record: _Record) -> None:
        """Append one line, completely or not at all."""
        line = msgspec.json.encode(record) + b"\n"
        try:
            if self._lines > self._count_alive() + _SLACK_LINES:
                self._rewrite()
            _write(self._descriptor, line)
        except OSError as error:
            os.ftruncate(self._descriptor, self._size)
            raise errors.internal_error(f"the state file {self._path} cannot be written: {error}") from error
        self._size += len(line)
        self._lines += 1

    def _count_alive(self) -> int:
        assert self._store is not None
        return len(self.tokens) + sum(len(c.items) for c in self._store.collections().values())

    def _rewrite(self) -> None:
        """Replace the file by the live content; a crash in between leaves the old file."""
        assert self._store is not None
        fresh = self._path.with_name(f".{self._path.name}.tmp")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            _lock(descriptor, self._path)
            lines = [msgspec.json.encode(record) for record in self._snapshot()]
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(b"".join(line + b"\n" for line in lines))
            os.fsync(descriptor)
            fresh.replace(self._path)
        except BaseException:
            os.close(descriptor)
            raise
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._size, self._lines = descriptor, os.fstat(descriptor).st_size, len(lines)

    def _snapshot(self) -> Iterator[_Record]:
        assert self._store is not None
        yield msgspec.structs.replace(self.identity, version=self._store.version)
        yield from self.tokens
        for where, collection in self._store.collections().items():
            for item in collection.items.values():
                yield Put(where=where, version=int(item["metadata"]["resourceVersion"]), item=item)


def _write(descriptor: int, line: bytes) -> None:
    if os.write(descriptor, line) != len(line):
        raise OSError("the file system is full")


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StateError(f"the state file {path} is used by another server; stop that one first") from error


def _records(content: bytes, path: Path) -> Iterator[_Record]:
    """Yield the complete lines of the file."""
    decoder = msgspec.json.Decoder(Identity | Token | Put | Removed)
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            yield decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            what = "is no state file of this server" if number == 1 else f"is damaged in line {number}"
            raise StateError(f"{path} {what}; move it away to start with an empty server") from error


def _replay(records: Iterable[_Record], path: Path) -> tuple[Identity, list[Token], list[Put]]:
    """Return the final state of the log; the objects are in the order of their versions."""
    identity = Identity()
    tokens: list[Token] = []
    alive: dict[tuple[StorageKey, Key], Put] = {}
    version = 1
    for number, record in enumerate(records):
        if (number == 0) != isinstance(record, Identity):
            raise StateError(f"{path} is no state file of this server; move it away to start again")
        match record:
            case Identity():
                identity, version = record, record.version
                if identity.format != FORMAT:
                    raise StateError(f"{path} has format {identity.format}, and this program knows {FORMAT}")
            case Token():
                tokens.append(record)
            case Put():
                metadata = record.item["metadata"]
                key = (metadata.get("namespace", ""), metadata["name"])
                alive[record.where, key] = record
                version = max(version, record.version)
            case Removed():
                alive.pop((record.where, record.key), None)
                version = max(version, record.version)
    puts = sorted(alive.values(), key=lambda put: put.version)
    return msgspec.structs.replace(identity, version=version), tokens, puts
