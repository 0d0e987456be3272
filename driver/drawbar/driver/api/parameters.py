"""Opaque parameters of classes and claims: their fields, and their problems.

One kind, `DeviceParameters`, stands in `opaque.parameters` of a DeviceClass or of a claim. It is decoded strictly: an
unknown field, a value of another type, or an impossible one is refused, since it would have no effect. Some fields are
refused in a claim, since only an administrator may set them. Nothing here reads a clock or a file.

docs/reference/parameters.md is made from the attributes below. Source: `resource.k8s.io` OpaqueDeviceConfiguration.
"""

import difflib
import enum
import itertools
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from drawbar.driver.api import meta

API_VERSION = "drawbar.dev/v1alpha1"
KIND = "DeviceParameters"
# The other kind of the group, for allocation by Drawbar with v1alpha3; it has no effect on how a device is used.
ALLOCATION_KIND = "AllocationParameters"

VARIABLES_MAX = 64
GROUPS_MAX = 8
FUNCTIONS_MAX = 256
VLAN_MAX = 4094
VALUE_BYTES = 4096
NAME_CHARS = 128
ID_MAX = 2**32 - 2  # the last one means "unchanged" to the kernel (chown(2))
TIMEOUT_MAX_SECONDS = 86_400
SHOWN_CHARS = 40
PROBLEMS_SHOWN = 4
# A bound on the work for one document, which any user may write.
PROBLEMS_MAX = 16
# The variables that name the device to the container.
RESERVED_PREFIX = "DRAWBAR_"
# The names that `daxctl reconfigure-device --mode` has for them.
DEVDAX = "devdax"
SYSTEM_RAM = "system-ram"
GRANULARITIES = (256, 512, 1024, 2048, 4096, 8192, 16384)
"""In bytes: those that a region of CXL memory can have (CXL 3.1, 8.2.4.20.7)."""

HOOK_SECONDS = 60
HOOK_MAX_SECONDS = 1800
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""Of hooks and bitstreams: no name leads out of its directory."""
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,62}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?|\*")
# The kernel's 15 characters less three for a number.
_INTERFACE = re.compile(r"[a-z][a-z0-9]{0,11}")
# As `cdi.spec` has it.
_CDI_NAME = r"[A-Za-z]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_CDI_KIND = re.compile(f"{_CDI_NAME}/{_CDI_NAME}")
_MODE = re.compile(r"0?[0-7]{3}")
# With a number it would be the interface of the pod itself.
_POD_INTERFACE = "eth"
# Lists and objects are cut to the available room.
_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.maxdict, _REPR.maxlist = 2, 4, 4
_DRIVER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Source(enum.StrEnum):
    """Where parameters come from, as an allocation names it."""

    CLASS = "FromClass"
    CLAIM = "FromClaim"

    @property
    def owner(self) -> str:
        """Return the source's name in a message."""
        return "the DeviceClass" if self is Source.CLASS else "the claim"


class DeviceFiles(meta.Struct, frozen=True):
    """The device's files in a container.

    Attributes:
        read_only: the container may only read the device's files; not with `vendorKind`.
        user: the number of the files' owner in the container.
        group: the same for the group.
        mode: permission bits of the files, octal, as a string such as `"0660"`.
    """

    read_only: bool | None = None
    user: int | None = None
    group: int | None = None
    mode: str | None = None


class Network(meta.Struct, frozen=True):
    """The device's network interfaces in a container.

    Attributes:
        interface_prefix: the name of interfaces in the container, before a number from 0; not `eth`, the pod's.
    """

    interface_prefix: str | None = None


class Memory(meta.Struct, frozen=True):
    """The use of the device's volatile memory, from before the device is visible.

    Attributes:
        mode: volatile CXL memory as `devdax` (default) or, in a class, as `system-ram` ([CXL memory](../classes/cxl-memory.md)).
        interleave: `true`: one region of a composite's members ([CXL memory](../classes/cxl-memory.md#several-devices-as-one)).
        granularity: bytes before the next device of such a region: 256, 512, 1024, 2048, 4096, 8192 or 16384; default: the
            CXL window's.
    """

    mode: str | None = None
    interleave: bool | None = None
    granularity: int | None = None


class Hook(meta.Struct, frozen=True):
    """An administrator's program that initialises, drains or cleans a device.

    Attributes:
        hook: its file in the node daemon's directory of hooks; class only.
        timeout_seconds: its deadline: 1 to 1800, default: 60; class only.
    """

    hook: str | None = None
    timeout_seconds: int | None = None


class Versions(meta.Struct, frozen=True):
    """The lowest versions of a visible device.

    Attributes:
        driver: the lowest version of the kernel module (`/sys/module/NAME/version`) for `visible`; class only.
        firmware: the same of the device's firmware, of NVMe disks; class only.
    """

    driver: str | None = None
    firmware: str | None = None


class Fpga(meta.Struct, frozen=True):
    """The design for an FPGA. The hook of its class loads it, or the kernel driver of a DFL card.

    Attributes:
        bitstream: the file to load, in the node daemon's directory of bitstreams, within `initialise.timeoutSeconds`.
        sha256: the SHA-256 that its content must have.
    """

    bitstream: str | None = None
    sha256: str | None = None


class FunctionGroup(meta.Struct, frozen=True):
    """Virtual functions with the same settings.

    Attributes:
        count: how many, on each physical function of the device.
        driver: the kernel driver that each gets; None for the one that the kernel chooses.
        vlan: the VLAN (IEEE 802.1Q) that the card puts their frames into; None for none.
        trust: whether the card trusts them: they may then, for example, receive all frames.
        spoof_check: whether the card drops frames with another sender's address; None for the card's default.
        stable_address: whether each gets a hardware address that is the same after each attach; else the card chooses.
    """

    count: int
    driver: str | None = None
    vlan: int | None = None
    trust: bool | None = None
    spoof_check: bool | None = None
    stable_address: bool | None = None

    @property
    def sets_link(self) -> bool:
        """Return whether a setting of the group goes through the network interface of the physical function."""
        fields = (self.vlan, self.trust, self.spoof_check, self.stable_address or None)
        return any(value is not None for value in fields)


class VirtualFunctions(meta.Struct, frozen=True):
    """The virtual functions (SR-IOV) to set up before a device is visible.

    Attributes:
        groups: the virtual functions of each physical function ([NICs](../classes/nic.md#virtual-functions)); class only.
        offered: offer each to other claims ([local pool](../local-pool.md#virtual-functions-of-a-fabrics-card)); class only.
    """

    groups: tuple[FunctionGroup, ...] = ()
    offered: bool | None = None

    @property
    def members(self) -> tuple[FunctionGroup, ...]:
        """Return the group of each virtual function, in the order of their numbers."""
        return tuple(group for group in self.groups for _ in range(group.count))

    @property
    def is_passed_to_claim(self) -> bool:
        """Return whether the claim's own containers get the virtual functions."""
        return bool(self.groups) and not self.offered


class DeviceParameters(meta.Struct, frozen=True):
    """The parameters of a class's or a claim's devices.

    Attributes:
        environment: at most 64 variables of the containers; a claim may set those of `claimVariables`. `DRAWBAR_` is
            reserved.
        claim_variables: names, or beginnings such as `NCCL_*`; class only.
        initialise: your program that makes the device ready for `visible` ([FPGAs](../classes/fpga.md)); class only.
        drain: your program that ends other uses of the device ([drain hooks](../node-release.md#drain-hooks)); class only.
        clean_up: your program that cleans the device after its use ([FPGAs](../classes/fpga.md#on-return)); class only.
        attach_timeout_seconds: give up an attach earlier than the Fabric and the scheduler; class only.
        vendor_kind: also use the vendor's own CDI files of this kind, such as `nvidia.com/gpu` ([GPUs](../classes/gpu.md)); class
            only.
    """

    environment: dict[str, str] = {}
    claim_variables: tuple[str, ...] = ()
    device_files: DeviceFiles = DeviceFiles()
    network: Network = Network()
    memory: Memory = Memory()
    initialise: Hook = Hook()
    drain: Hook = Hook()
    clean_up: Hook = Hook()
    fpga: Fpga = Fpga()
    minimum_versions: Versions = Versions()
    virtual_functions: VirtualFunctions = VirtualFunctions()
    attach_timeout_seconds: int | None = None
    vendor_kind: str | None = None


NOTHING = DeviceParameters()


class Invalid(Exception):
    """Invalid parameters.

    Attributes:
        problems: one clause each, with its place and a remedy.
    """

    def __init__(self, problems: tuple[str, ...]) -> None:
        rest = len(problems) - PROBLEMS_SHOWN
        more = f"; and {rest if len(problems) < PROBLEMS_MAX else 'many'} more" if rest > 0 else ""
        super().__init__("; ".join(problems[:PROBLEMS_SHOWN]) + more)
        self.problems = problems


class _Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field of an object.

    Attributes:
        problems: the problems of a value: clauses to follow its place. None for an object.
        fields: of an object; None for a value.
        by_class: only an administrator may set it.
        by_class_values: values that only an administrator may set.
    """

    problems: Callable[[Any], Iterator[tuple[str, str]]] | None = None
    fields: "Mapping[str, _Field] | None" = None
    by_class: bool = False
    by_class_values: tuple[str, ...] = ()


def decode(document: object, source: Source, *, path: str = "") -> DeviceParameters:
    """Return the parameters in a document.

    Args:
        document: `opaque.parameters` as JSON values.
        source: where it comes from.
        path: of the document, for the messages.

    Raises:
        Invalid: with all problems, `PROBLEMS_MAX` at most.
    """
    problems = tuple(
        f"{_join_path(path, where) or 'the document'}{clause}"
        for where, clause in itertools.islice(_problems(document, source), PROBLEMS_MAX)
    )
    if problems:
        raise Invalid(problems)
    assert isinstance(document, dict)
    return _convert(document)


def from_record(document: Mapping[str, Any]) -> DeviceParameters:
    """Return parameters from a record that may be of a newer version; unknown fields are skipped."""
    try:
        return _convert(document)
    except msgspec.ValidationError:
        return NOTHING


def document(parameters: DeviceParameters) -> dict[str, Any]:
    """Return the record that `from_record` reads; empty for default parameters."""
    record: dict[str, Any] = msgspec.to_builtins(parameters)
    return {key: value for key, value in record.items() if value not in ({}, [])}


def _convert(document: Mapping[str, Any]) -> DeviceParameters:
    return msgspec.convert(document, DeviceParameters)


def _problems(document: object, source: Source) -> Iterator[tuple[str, str]]:
    """Yield each problem as its place and a clause to follow it."""
    if not isinstance(document, dict):
        yield "", f" is {_quote(document)}, not an object: write apiVersion: {API_VERSION} and kind: {KIND}"
        return
    stated = document.get("apiVersion"), document.get("kind")
    if stated != (API_VERSION, KIND):
        for name, value, wanted in (
            ("apiVersion", stated[0], API_VERSION),
            ("kind", stated[1], KIND),
        ):
            if value != wanted:
                was = f" is {_quote(value)}" if name in document else " is missing"
                yield name, f"{was}: this version of Drawbar takes {wanted}"
        # The fields of another kind are unknown.
        return
    rest = {key: value for key, value in document.items() if key not in ("apiVersion", "kind")}
    yield from _object(rest, _FIELDS, source, "")


def _object(
    held: Mapping[str, Any], fields: Mapping[str, _Field], source: Source, path: str
) -> Iterator[tuple[str, str]]:
    for key, value in held.items():
        where, field = _join_path(path, _segment(key)), fields.get(key)
        if field is None:
            near = difflib.get_close_matches(str(key)[:SHOWN_CHARS], fields, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(fields)}"
            yield where, f" is not a field of {KIND}: {hint}"
        elif field.by_class and source is Source.CLAIM:
            yield where, " is reserved for administrators: only the parameters of a DeviceClass may have it"
        elif value in field.by_class_values and source is Source.CLAIM:
            yield (
                where,
                f" is {value}, which is reserved for administrators: leave it out, and use a DeviceClass whose parameters have it",
            )
        elif field.fields is not None:
            if isinstance(value, dict):
                yield from _object(value, field.fields, source, where)
            else:
                yield where, f" is {_quote(value)}, not an object: give it some of {', '.join(field.fields)}"
        elif field.problems is not None:
            for below, clause in field.problems(value):
                yield f"{where}{below}", clause


def _environment(value: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield "", f" is {_kind(value)}, not an object: write each variable as NAME: value"
        return
    if len(value) > VARIABLES_MAX:
        yield "", f" has {len(value)} variables: {VARIABLES_MAX} are the most"
        return
    for name, text in value.items():
        # A value may be confidential, and stands in no message.
        where = _format_key(name)
        if not _VARIABLE.fullmatch(name) or len(name) > NAME_CHARS:
            yield (
                where,
                f" is not the name of a variable: use at most {NAME_CHARS} letters, digits and _, no digit first",
            )
        elif name.upper().startswith(RESERVED_PREFIX):
            yield where, f" is Drawbar's own: choose a name that does not begin with {RESERVED_PREFIX}"
        if not isinstance(text, str):
            yield where, f" is {_kind(text)}, no string: put it in quotation marks"
        elif "\0" in text or len(text.encode("utf-8", "replace")) > VALUE_BYTES:
            yield where, f" cannot be a variable's value: {VALUE_BYTES} bytes without a NUL are the most"


def _claim_variables(value: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(value, list):
        yield "", f" is {_quote(value)}, no list: write names of variables, or beginnings such as NCCL_*"
        return
    for index, pattern in enumerate(value):
        if not isinstance(pattern, str) or not _PATTERN.fullmatch(pattern):
            yield (
                f"[{index}]",
                f" is {_quote(pattern)}: write the name of a variable, or its beginning and a *",
            )


def _truth(value: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(value, bool):
        yield "", f" is {_quote(value)}: write true or false"


def _groups(value: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(value, list) or not all(isinstance(group, dict) for group in value):
        yield "", f" is {_quote(value)}, no list of objects: give each some of {', '.join(_GROUP)}"
        return
    if len(value) > GROUPS_MAX:
        yield "", f" has {len(value)} entries: {GROUPS_MAX} are the most"
        return
    total = 0
    for index, group in enumerate(value):
        yield from _object(group, _GROUP, Source.CLASS, f"[{index}]")
        count = group.get("count")
        if "count" not in group:
            yield f"[{index}].count", " is missing: write how many virtual functions are set up so"
        total += count if type(count) is int and 0 < count <= FUNCTIONS_MAX else 0
    if total > FUNCTIONS_MAX:
        yield "", f" are {total} virtual functions: {FUNCTIONS_MAX} are the most"


def _number(least: int, most: int) -> Callable[[Any], Iterator[tuple[str, str]]]:
    def problems(value: Any) -> Iterator[tuple[str, str]]:
        # A bool is an int to Python.
        if type(value) is not int or not least <= value <= most:
            yield "", f" is {_quote(value)}: write a whole number from {least} to {most}"

    return problems


def _mode(value: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(value, str) or not _MODE.fullmatch(value):
        yield "", f' is {_quote(value)}: write permission bits in octal as a string, such as "0660"'


def _interface(value: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(value, str) or not _INTERFACE.fullmatch(value):
        yield "", f" is {_quote(value)}: write at most 12 small letters and digits, a letter first"
    elif value == _POD_INTERFACE:
        yield "", f" is {value}, and {value}0 is the pod's own interface: choose another beginning"


def _vendor_kind(value: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(value, str) or not _CDI_KIND.fullmatch(value):
        yield "", f" is {_quote(value)}: write the kind of the vendor's CDI files, such as nvidia.com/gpu"


def _memory_mode(value: Any) -> Iterator[tuple[str, str]]:
    if value not in (DEVDAX, SYSTEM_RAM):
        yield "", f" is {_quote(value)}: write {DEVDAX} or {SYSTEM_RAM}"


def _granularity(value: Any) -> Iterator[tuple[str, str]]:
    # A bool is an int to Python.
    if type(value) is not int or value not in GRANULARITIES:
        *smaller, largest = GRANULARITIES
        choices = f"{', '.join(map(str, smaller))} or {largest}"
        yield "", f" is {_quote(value)}: write a number of bytes, {choices}"


def _file_name(value: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(value, str) or not FILE_NAME.fullmatch(value):
        yield "", f" is {_quote(value)}: write the name of a file without its directory"


def _sha256(value: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        yield "", f" is {_quote(value)}: write the 64 small hexadecimal digits that sha256sum prints"


def _version(value: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(value, str) or not _VERSION.fullmatch(value):
        yield "", f' is {_quote(value)}: write a version as a string, such as "5.15.2"'


def _kernel_driver(value: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(value, str) or not _DRIVER.fullmatch(value):
        yield "", f" is {_quote(value)}: write the name of a kernel driver, such as vfio-pci"


_GROUP: Mapping[str, _Field] = {
    "count": _Field(problems=_number(1, FUNCTIONS_MAX)),
    "driver": _Field(problems=_kernel_driver),
    "vlan": _Field(problems=_number(1, VLAN_MAX)),
    "trust": _Field(problems=_truth),
    "spoofCheck": _Field(problems=_truth),
    "stableAddress": _Field(problems=_truth),
}
_HOOK = _Field(
    fields={
        "hook": _Field(problems=_file_name, by_class=True),
        "timeoutSeconds": _Field(problems=_number(1, HOOK_MAX_SECONDS), by_class=True),
    }
)
_FIELDS: Mapping[str, _Field] = {
    "environment": _Field(problems=_environment),
    "claimVariables": _Field(problems=_claim_variables, by_class=True),
    "deviceFiles": _Field(
        fields={
            "readOnly": _Field(problems=_truth),
            "user": _Field(problems=_number(0, ID_MAX)),
            "group": _Field(problems=_number(0, ID_MAX)),
            "mode": _Field(problems=_mode),
        },
    ),
    "network": _Field(fields={"interfacePrefix": _Field(problems=_interface)}),
    "memory": _Field(
        fields={
            # It changes the node for all its pods.
            "mode": _Field(problems=_memory_mode, by_class_values=(SYSTEM_RAM,)),
            "interleave": _Field(problems=_truth),
            "granularity": _Field(problems=_granularity),
        }
    ),
    "initialise": _HOOK,
    "drain": _HOOK,
    "cleanUp": _HOOK,
    "fpga": _Field(fields={"bitstream": _Field(problems=_file_name), "sha256": _Field(problems=_sha256)}),
    "minimumVersions": _Field(
        fields={
            "driver": _Field(problems=_version, by_class=True),
            "firmware": _Field(problems=_version, by_class=True),
        }
    ),
    "virtualFunctions": _Field(
        fields={
            "groups": _Field(problems=_groups, by_class=True),
            "offered": _Field(problems=_truth, by_class=True),
        }
    ),
    "attachTimeoutSeconds": _Field(problems=_number(1, TIMEOUT_MAX_SECONDS), by_class=True),
    "vendorKind": _Field(problems=_vendor_kind, by_class=True),
}


def _join_path(path: str, where: str) -> str:
    if not path or not where or where.startswith("["):
        return f"{path}{where}"
    return f"{path}.{where}"


def _format_key(key: object) -> str:
    """Return a key of a map in the form that follows the map's path."""
    segment = _segment(key)
    return segment if segment.startswith("[") else f".{segment}"


def _segment(key: object) -> str:
    """Return a key as part of a path."""
    text = str(key)
    return text if _PLAIN.fullmatch(text) and len(text) <= NAME_CHARS else f"[{_quote(text)}]"


def _quote(value: object) -> str:
    """Return a value for a message: cut, and without line breaks."""
    if isinstance(value, str | list):
        value = value[: SHOWN_CHARS + 1]
    text = _REPR.repr(value) if isinstance(value, list | dict) else repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."


def _kind(value: object) -> str:
    """Return the type of a value in words, without the value."""
    words = {bool: "true or false", int: "a number", float: "a number", str: "a string", list: "a list"}
    return "null" if value is None else words.get(type(value), "an object")
