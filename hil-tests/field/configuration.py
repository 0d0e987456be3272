"""The file that says on what the tests may run: one fabric, one node of it, and the devices that may be touched.

    fabric: {adapter: grpc, endpoint: "unix:/run/vendor/fabric.sock"}
    node:
      name: worker-7
      host: H7
      command: [ssh, root@worker-7]
      checkout: /opt/drawbar
    devices:
      - {id: disk-3, class: nvme}
      - {id: disk-4, class: nvme, contents: lose}

YAML, and so JSON. Reading it does no I/O; the error lists all problems.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from lab import errors

from drawbar.fabric import contract
from field import reading

CLASSES = tuple(str(device_class) for device_class in contract.OFFERED_CLASSES)
CONTENTS = ("keep", "lose")
WAIT_SECONDS = 120.0


class InvalidConfiguration(errors.LabError):
    """The file is at fault.

    Attributes:
        problems: one sentence each.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device that may be attached, used and detached.

    Attributes:
        id: as the fabric names it.
        device_class: as in `drawbar.fabric.contract.DeviceClass`.
        expendable: its contents may be overwritten.
    """

    id: str
    device_class: str
    expendable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """How the fabric manager is reached; the fields are those of `contract.AdapterConfig`.

    Attributes:
        credentials_file: a file with `username`, `password`, `token`, `authority`, `certificate`, `key`; or nothing.
    """

    adapter: str
    endpoint: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = 30.0
    credentials_file: str = ""
    verify: bool = True
    server_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The node, and how programs are run there.

    Attributes:
        name: of the node; the daemon there is started with it.
        host: what the fabric calls it.
        command: a program and its arguments that, given one more, run it there as a line of a shell, as root, with
            standard input and output. `ssh root@worker-7` is one.
        checkout: this checkout's folder over there, of the same version, with its environment.
    """

    name: str
    host: str
    command: tuple[str, ...]
    checkout: str

    @property
    def python(self) -> str:
        """Return the interpreter over there."""
        return f"{self.checkout}/.venv/bin/python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """All of the file.

    Attributes:
        attach_seconds: how long the fabric may take to attach a device, and again the node to see it.
        detach_seconds: how long to detach it.
    """

    fabric: Fabric
    node: Node
    devices: tuple[Device, ...]
    attach_seconds: float = WAIT_SECONDS
    detach_seconds: float = WAIT_SECONDS


def parse(text: str) -> Site:
    """Return the file's content as values.

    Raises:
        InvalidConfiguration: with everything that is wrong.
    """
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}" if mark is not None else "the file"
        raise InvalidConfiguration(
            [f"{where} is not YAML: {getattr(error, 'problem', None) or 'unreadable'}"]
        ) from error
    problems: list[str] = []
    whole = reading.Table(content, "", problems)
    site = Site(
        fabric=_fabric(whole.table("fabric")),
        node=_node(whole.table("node")),
        devices=tuple(_device(table) for table in whole.tables("devices")),
        attach_seconds=whole.seconds("attachSeconds", WAIT_SECONDS),
        detach_seconds=whole.seconds("detachSeconds", WAIT_SECONDS),
    )
    whole.nothing_else()
    problems += _find_repeated_devices(site.devices)
    if problems:
        raise InvalidConfiguration(problems)
    return site


def _fabric(table: reading.Table) -> Fabric:
    made = Fabric(
        adapter=table.text("adapter"),
        endpoint=table.text("endpoint"),
        parameters=table.texts_by_name("parameters"),
        timeout_seconds=table.seconds("timeoutSeconds", 30.0),
        credentials_file=table.text("credentialsFile", ""),
        verify=table.flag("verify", True),
        server_name=table.text("serverName", ""),
    )
    table.nothing_else()
    return made


def _node(table: reading.Table) -> Node:
    made = Node(
        name=table.text("name"),
        host=table.text("host"),
        command=table.words("command"),
        checkout=table.path("checkout"),
    )
    table.nothing_else()
    return made


def _device(table: reading.Table) -> Device:
    made = Device(
        id=table.text("id"),
        device_class=table.one_of("class", CLASSES),
        expendable=table.one_of("contents", CONTENTS, "keep") == "lose",
    )
    table.nothing_else()
    return made


def _find_repeated_devices(devices: Sequence[Device]) -> list[str]:
    ids = [device.id for device in devices if device.id]
    return [
        f'the device "{device_id}" is listed twice'
        for device_id in sorted({i for i in ids if ids.count(i) > 1})
    ]


def credentials(text: str) -> contract.Credentials:
    """Return the content of the credentials file; no message quotes it.

    Raises:
        InvalidConfiguration: it is not a table of texts, or has an unknown key.
    """
    problems: list[str] = []
    try:
        content: Any = yaml.safe_load(text)
    except yaml.YAMLError:
        raise InvalidConfiguration(["the credentials file is not YAML"]) from None
    table = reading.Table(content, "the credentials file", problems)
    names = ("username", "password", "token", "authority", "certificate", "key")
    values = {name: table.text(name, "") for name in names}
    table.nothing_else()
    if problems:
        raise InvalidConfiguration(problems)
    return contract.Credentials(**values)
