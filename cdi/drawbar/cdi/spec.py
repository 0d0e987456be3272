"""The content of a CDI file, as values that msgspec writes and reads.

The order of the fields is that of the file; what has its default is left out of it. What a valid one looks like is said in
`rules`, its lowest version in `versions`.

Source: Container Device Interface specification 1.1.0, SPEC.md, section "CDI JSON Specification".
"""

from collections.abc import Mapping

import msgspec

READ_WRITE = "rw"


class _Struct(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """What all objects of the document have in common."""


class DeviceNode(_Struct, frozen=True, kw_only=True):
    """A device file that appears in the container.

    Attributes:
        path: absolute path in the container.
        host_path: path on the host where it differs.
        type: `b` for block, `c` or `u` for character devices, `p` for a pipe; empty lets the runtime read it from
            the host's file.
        major: device number; None, and 0 too, let the runtime read both numbers from the host's file.
        minor: device number.
        file_mode: permission bits of the file, such as 0o660.
        permissions: of the device cgroup, any of `r`, `w`, `m`; empty means all of them.
        uid: the file's owner in the container; None for the container's own user.
        gid: the file's group in the container.
    """

    path: str
    host_path: str = ""
    type: str = ""
    major: int | None = None
    minor: int | None = None
    file_mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None


class Mount(_Struct, frozen=True, kw_only=True):
    """A part of the host's file system that appears in the container.

    Attributes:
        host_path: absolute path on the host, or what the file system's type takes for one.
        container_path: absolute path in the container.
        type: of the file system; empty is a bind mount.
        options: as of mount(8), such as `ro`, `bind`.
    """

    host_path: str
    container_path: str
    type: str = ""
    options: tuple[str, ...] = ()


class Hook(_Struct, frozen=True, kw_only=True, rename={"name": "hookName", "timeout_seconds": "timeout"}):
    """A program that the runtime runs at one point of a container's life.

    Attributes:
        name: one of `rules.HOOK_NAMES`.
        path: the program's absolute path.
        args: with the program's name first.
        env: `NAME=VALUE` each.
        timeout_seconds: after which the runtime gives it up; None waits for ever.
    """

    name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout_seconds: int | None = None


class NetDevice(_Struct, frozen=True, kw_only=True, rename={"host_name": "hostInterfaceName"}):
    """A network interface that moves into the container.

    Attributes:
        host_name: the interface on the host.
        name: what it is called in the container.
    """

    host_name: str
    name: str


_RDT_NAMES = {
    "clos_id": "closID",
    "l3_cache_schema": "l3CacheSchema",
    "mem_bw_schema": "memBwSchema",
    "enable_monitoring": "enableMonitoring",
    "enable_cmt": "enableCMT",
    "enable_mbm": "enableMBM",
}


class IntelRdt(_Struct, frozen=True, kw_only=True, rename=_RDT_NAMES):
    """Cache and memory bandwidth: Documentation/arch/x86/resctrl.rst.

    Attributes:
        clos_id: the class of service, a directory of resctrl; `/` is the root's.
        schemata: lines of the schemata file; since 1.1.0.
        enable_monitoring: since 1.1.0, in place of `enable_cmt` and `enable_mbm`, which 1.1.0 dropped.
    """

    clos_id: str = ""
    l3_cache_schema: str = ""
    mem_bw_schema: str = ""
    schemata: tuple[str, ...] = ()
    enable_monitoring: bool = False
    enable_cmt: bool = False
    enable_mbm: bool = False


class ContainerEdits(_Struct, frozen=True, kw_only=True):
    """What a device, or every device of a file, changes in a container.

    Attributes:
        env: `NAME=VALUE` each.
        additional_gids: groups that the container's process joins; the runtime ignores 0.
    """

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    additional_gids: tuple[int, ...] = ()
    intel_rdt: IntelRdt | None = None


EMPTY = ContainerEdits()
_EDITS_NAME = {"edits": "containerEdits"}


class Device(_Struct, frozen=True, kw_only=True, rename=_EDITS_NAME):
    """One device that a container can ask for.

    Attributes:
        name: unique in its file.
        annotations: said about the device; no container sees them.
        edits: what it changes; not empty.
    """

    name: str
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    edits: ContainerEdits


class Spec(_Struct, frozen=True, kw_only=True, rename=_EDITS_NAME):
    """One CDI file.

    Attributes:
        kind: `vendor/class`.
        annotations: said about the file; no container sees them.
        devices: at least one, names unique.
        edits: what any device of the file changes, once.
    """

    kind: str
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    devices: tuple[Device, ...]
    edits: ContainerEdits = EMPTY

    @property
    def vendor(self) -> str:
        """The first half of the kind."""
        return self.kind.partition("/")[0]

    def qualified(self, device: Device) -> str:
        """The name a runtime resolves: `vendor/class=name`."""
        return f"{self.kind}={device.name}"

    def all_edits(self) -> tuple[ContainerEdits, ...]:
        """The file's own edits and those of each device."""
        return (self.edits, *(device.edits for device in self.devices))
