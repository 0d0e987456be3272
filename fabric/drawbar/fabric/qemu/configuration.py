"""The file of a QEMU fabric: virtual machines by their QMP sockets, and the pool of devices.

JSON in camelCase, strict: an unknown field is an error. All problems are reported at once, one sentence each.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from drawbar.fabric import contract, errors
from drawbar.fabric.qemu import pool

SOCKET_PATH_BYTES = 107
"""`sun_path` holds 108 bytes with the closing NUL (unix(7))."""
DETACH_SECONDS = 60.0

Value = TypeVar("Value")


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The common base of all objects of the file."""


class HostSpec(_Strict, frozen=True, kw_only=True):
    """One virtual machine.

    Attributes:
        id: unique.
        qmp: absolute path of a QMP socket without other clients.
        name: the node's name; the id if absent.
        ports: QEMU's ids of the usable ports; all hot-plug ports if absent.
        identifiers: in addition to "hostname" (always the name) and "system-uuid" (from QEMU).
    """

    id: str
    qmp: str
    name: str = ""
    ports: tuple[str, ...] | None = None
    identifiers: dict[str, str] = {}


class Configuration(_Strict, frozen=True, kw_only=True):
    """The whole fabric.

    Attributes:
        hosts: the virtual machines.
        devices: their common pool.
        detach_seconds: the longest time for a guest to release a device.
    """

    hosts: tuple[HostSpec, ...] = ()
    devices: tuple[pool.Model, ...] = ()
    detach_seconds: float = DETACH_SECONDS


class _Outline(_Strict, frozen=True, kw_only=True):
    """The file with its lists undecoded, so that the problems of each entry are found."""

    hosts: list[msgspec.Raw] = []
    devices: list[msgspec.Raw] = []
    detach_seconds: float = DETACH_SECONDS


def load(path: Path) -> Configuration:
    """Read a file and return its configuration.

    Raises:
        InvalidConfiguration: the file cannot be read, or has problems; all are listed.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise errors.InvalidConfiguration(
            [f"the QEMU fabric's configuration {path} cannot be read: {error.strerror}"]
        ) from error
    try:
        return parse(text)
    except errors.InvalidConfiguration as error:
        raise errors.InvalidConfiguration([f"{path}: {problem}" for problem in error.problems]) from error


def parse(text: bytes) -> Configuration:
    """Return the configuration in a text.

    Raises:
        InvalidConfiguration: with all problems.
    """
    problems: list[str] = []
    try:
        outline = msgspec.json.decode(text, type=_Outline)
    except (ValueError, RecursionError) as error:
        raise errors.InvalidConfiguration([f"the configuration: {error}"]) from error
    hosts: list[HostSpec] = _read_all(outline.hosts, HostSpec, "hosts", problems)
    devices: list[pool.Model] = _read_all(outline.devices, pool.Model, "devices", problems)
    problems += _host_problems(hosts)
    problems += _find_repeated("device id", [device.id for device in devices])
    problems += _find_repeated("file", [path for device in devices for path in pool.files(device)])
    problems += [problem for device in devices for problem in pool.problems(device)]
    if not outline.hosts:
        problems.append("there is no host: name at least one virtual machine")
    if not outline.detach_seconds > 0:
        problems.append(f"detachSeconds is {outline.detach_seconds:g}, it must be positive")
    if problems:
        raise errors.InvalidConfiguration(problems)
    return Configuration(hosts=tuple(hosts), devices=tuple(devices), detach_seconds=outline.detach_seconds)


def _read_all(
    texts: Sequence[msgspec.Raw],
    # A union of structs is a value, and no type to mypy.
    kind: object,
    where: str,
    problems: list[str],
) -> list[Value]:
    values: list[Value] = []
    for index, text in enumerate(texts):
        try:
            values.append(msgspec.json.Decoder(kind).decode(text))
        except (ValueError, RecursionError) as error:
            problems.append(f"{where}[{index}]: {error}")
    return values


def _host_problems(hosts: Sequence[HostSpec]) -> list[str]:
    problems = _find_repeated("host id", [host.id for host in hosts])
    problems += _find_repeated("QMP socket", [host.qmp for host in hosts])
    for host in hosts:
        if not host.id:
            problems.append("a host has an empty id")
        for text in (host.id, host.name):
            if len(text.encode()) > contract.STRING_BYTES:
                problems.append(f'host {host.id}: "{text}" has more than {contract.STRING_BYTES} bytes')
        if not host.qmp.startswith("/"):
            problems.append(f'host {host.id}: qmp "{host.qmp}" is not an absolute path')
        if (size := len(host.qmp.encode())) > SOCKET_PATH_BYTES:
            problems.append(f"host {host.id}: qmp has {size} bytes, the kernel allows {SOCKET_PATH_BYTES}")
        problems += _find_repeated(f"host {host.id}: port", host.ports or ())
    return problems


def _find_repeated(what: str, names: Iterable[str]) -> list[str]:
    return [f'{what} "{name}" is used {count} times' for name, count in Counter(names).items() if count > 1]
