"""The commands to a running simulated fabric: a closed set, as JSON or as words."""

import json
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, assert_never, get_args

import msgspec

from drawbar.fabric import contract, errors
from drawbar.mocks.fabric import configuration, faults
from drawbar.mocks.fabric.console import Console


class _Command(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", tag_field="command"
):
    """The base of all commands."""


class SurpriseDetach(_Command, frozen=True, kw_only=True, tag="surprise-detach"):
    """Disconnect the device without a request."""

    device: str


class ForgetConnection(_Command, frozen=True, kw_only=True, tag="forget-connection"):
    """Show the device as free although it stays attached."""

    device: str


class RecallConnection(_Command, frozen=True, kw_only=True, tag="recall-connection"):
    """Show a forgotten connection again."""

    device: str


class ForeignAttach(_Command, frozen=True, kw_only=True, tag="foreign-attach"):
    """Attach the device to a host of the configuration, as another cluster would."""

    device: str
    host: str
    mark: str | None = None


class ForgetOperations(_Command, frozen=True, kw_only=True, tag="forget-operations"):
    """Restart the manager without its operations; drop those in flight."""


class AddDevice(_Command, frozen=True, kw_only=True, tag="add-device"):
    """Put a device, described as in the configuration, into an enclosure."""

    enclosure: str
    device: configuration.DeviceSpec


class RemoveDevice(_Command, frozen=True, kw_only=True, tag="remove-device"):
    """Take the device out of its enclosure, and off its host."""

    device: str


class SetHealth(_Command, frozen=True, kw_only=True, tag="set-health"):
    """Set the health of a device."""

    device: str
    health: contract.Health


class SetPort(_Command, frozen=True, kw_only=True, tag="set-port"):
    """Make a port of a host fail, or work again."""

    host: str
    port: str
    state: Literal["fault", "ok"]


class Pause(_Command, frozen=True, kw_only=True, tag="pause"):
    """Stop answering calls and watches; operations go on."""


class Resume(_Command, frozen=True, kw_only=True, tag="resume"):
    """Answer again."""


class Resync(_Command, frozen=True, kw_only=True, tag="resync"):
    """End all watches, so that their callers list again."""


class AddFault(_Command, frozen=True, kw_only=True, tag="add-fault"):
    """Add a fault, described as in the configuration."""

    fault: faults.Fault


class ClearFaults(_Command, frozen=True, kw_only=True, tag="clear-faults"):
    """Remove all faults."""


Command: TypeAlias = (
    SurpriseDetach
    | ForgetConnection
    | RecallConnection
    | ForeignAttach
    | ForgetOperations
    | AddDevice
    | RemoveDevice
    | SetHealth
    | SetPort
    | Pause
    | Resume
    | Resync
    | AddFault
    | ClearFaults
)
COMMANDS: tuple[type[_Command], ...] = get_args(Command)
_ANY: Any = Command  # mypy has no type for a union as a value


async def carry_out(console: Console, command: Command) -> None:
    """Carry out a command.

    Raises:
        FabricError: it is impossible; nothing changed.
    """
    match command:
        case SurpriseDetach(device=device):
            await console.surprise_detach(device)
        case ForgetConnection(device=device):
            console.forget_connection(device)
        case RecallConnection(device=device):
            console.recall_connection(device)
        case ForeignAttach(device=device, host=host, mark=mark):
            await console.foreign_attach(device, host, mark=mark)
        case ForgetOperations():
            await console.forget_operations()
        case RemoveDevice(device=device):
            await console.remove_device(device)
        case AddDevice(enclosure=enclosure, device=spec):
            console.add_device(configuration.new_device(enclosure, spec))
        case SetHealth(device=device, health=health):
            console.set_health(device, health)
        case SetPort(host=host, port=port_id, state=state):
            console.set_port(host, port_id, faulty=state == "fault")
        case AddFault(fault=fault):
            console.add_fault(fault)
        case _:
            _set_mood(console, command)


def _set_mood(console: Console, command: Pause | Resume | Resync | ClearFaults) -> None:
    match command:
        case Pause():
            console.pause()
        case Resume():
            console.resume()
        case Resync():
            console.resync()
        case ClearFaults():
            console.clear_faults()
        case _:
            assert_never(command)


def parse(line: bytes) -> Command:
    """Decode one command.

    Raises:
        InvalidArgument: the line is not a command.
    """
    try:
        command: Command = msgspec.json.decode(line, type=_ANY)
    except msgspec.DecodeError as error:
        raise errors.InvalidArgument(f"this is no command: {error}") from error
    return command


def from_words(words: Sequence[str]) -> bytes:
    """Return the line for a command given as words: its name, then its fields in order, objects as JSON.

    Raises:
        InvalidArgument: there is no such command, or there are too many words.
    """
    name, *values = words
    kind = next((each for each in COMMANDS if each.__struct_config__.tag == name), None)
    if kind is None:
        names = ", ".join(str(each.__struct_config__.tag) for each in COMMANDS)
        raise errors.InvalidArgument(f"there is no command {name}: choose {names}")
    fields = kind.__struct_encode_fields__
    if len(values) > len(fields):
        raise errors.InvalidArgument(f"{usage(kind)} takes no more words than that")
    try:
        reported = {
            field: json.loads(value) if value.startswith("{") else value
            for field, value in zip(fields, values, strict=False)
        }
    except ValueError as error:
        raise errors.InvalidArgument(f"{name}: an object is not JSON ({error})") from error
    return json.dumps({"command": name, **reported}).encode() + b"\n"


def usage(kind: type[_Command]) -> str:
    """Return a command in words, for operators."""
    fields = msgspec.structs.fields(kind)
    words = [field.encode_name.upper() if field.required else f"[{field.encode_name}]" for field in fields]
    return " ".join([str(kind.__struct_config__.tag), *words])
