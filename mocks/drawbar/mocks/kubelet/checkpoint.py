"""The kubelet's checkpoint of claims: `dra_manager_state`, in the real kubelet's format.

The file is JSON with two fields: `Data`, itself JSON as a string, and `Checksum`, the CRC-32 (IEEE) of that string. It
contains the pods of each claim and the plugins' answers. It does *not* contain whether a claim is prepared. It is
replaced atomically. A file with a wrong checksum prevents the kubelet's start.

Limit: the format of releases up to 1.31 is not emulated; its content is the same.

Source: pkg/kubelet/cm/dra/state of Kubernetes 1.36, as described by the fact pages.
"""

import zlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from drawbar.mocks.kubelet import errors, files

FILE = "dra_manager_state"
KIND = "DRACheckpoint"
API_VERSION = "checkpoint.dra.kubelet.k8s.io/v1"


class _Struct(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """The base of all objects, with Go's field names in capitals."""


class Device(_Struct, frozen=True):
    """A device prepared by a plugin. Without request names it is for all requests."""

    pool_name: str
    device_name: str
    share_id: str | None = msgspec.field(name="ShareID", default=None)
    request_names: tuple[str, ...] = ()
    cdi_device_ids: tuple[str, ...] = msgspec.field(name="CDIDeviceIDs", default=())


class DriverState(_Struct, frozen=True):
    """The answer of one driver; empty before it. Only releases with handles have one here."""

    devices: tuple[Device, ...] | None = None
    resource_handle: str | msgspec.UnsetType = msgspec.UNSET


class Entry(_Struct, frozen=True):
    """One claim on this node. `pod_uids` is a set, encoded by Go as a map to empty values."""

    claim_uid: str = msgspec.field(name="ClaimUID")
    claim_name: str
    namespace: str
    pod_uids: dict[str, dict[str, str]] = msgspec.field(name="PodUIDs")
    driver_state: dict[str, DriverState]


class _Data(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    api_version: str = msgspec.field(name="apiVersion")
    entries: list[Entry] | None = msgspec.field(name="Entries", default=None)


class _File(_Struct, frozen=True):
    data: str
    checksum: int


def load(path: Path) -> list[Entry]:
    """Return the entries; empty if there is no file.

    Raises:
        errors.StateError: it is corrupt or unreadable.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _refusal(path, f"it cannot be read: {error.strerror}") from error
    try:
        stored = msgspec.json.decode(content, type=_File)
        computed = zlib.crc32(stored.data.encode())
        if computed != stored.checksum:
            raise _refusal(path, f"checkpoint is corrupted: checksum {stored.checksum}, content {computed}")
        return msgspec.json.decode(stored.data, type=_Data).entries or []
    except msgspec.MsgspecError as error:
        raise _refusal(path, f"checkpoint is corrupted: {error}") from error


def save(path: Path, entries: Iterable[Entry]) -> None:
    """Replace the file. Blocking, but small."""
    data = msgspec.json.encode(_Data(kind=KIND, api_version=API_VERSION, entries=list(entries))).decode()
    files.replace(path, msgspec.json.encode(_File(data=data, checksum=zlib.crc32(data.encode()))))


def _refusal(path: Path, reason: str) -> errors.StateError:
    return errors.StateError(
        f"the kubelet does not start: {path}: {reason}; drain node and remove DRA state file"
    )
