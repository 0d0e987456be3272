"""Files that describe a claim's devices to its containers: KEP-5304, `DeviceMetadata`.

Each request of a claim has a file, `metadata/UID/REQUEST.json` in the driver's directory below the kubelet's `plugins`. The
CDI device of the request's first device mounts it read-only, so only containers with the request get the file. A file is
written after the claim's record and removed after it. A file without a record is a leftover, and is removed at the next
start. Files are not synced, because after a power loss the kubelet prepares every claim again.

A file is a stream of JSON objects, one a line: the same object in each version of `API_VERSIONS`, the newest first. A reader
takes the first object with a version known to it.

If a file is written again with other content, its `generation` is higher. A running container keeps its original file,
because a mounted file is not replaced.

Source: KEP-5304; `metadata.resource.k8s.io`, v1alpha1 of Kubernetes 1.36 and v1beta1 of 1.37, which have the same fields.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from drawbar.driver.api import claims
from drawbar.driver.catalogue import reasons
from drawbar.driver.node import errors
from drawbar.driver.node.inventory import attributes
from drawbar.driver.node.preparation import records, sharedfiles

API_VERSIONS = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")
KIND = "DeviceMetadata"
ROOT = "/var/run/kubernetes.io/dra-device-attributes"
FOLDER = "metadata"
SUFFIX = ".json"
# The bytes to read at most: the file may be damaged or foreign.
FILE_BYTES = 1024 * 1024
# The form of the names of objects and requests. No such name leads out of a directory.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")


class DescribedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device of a claim, as described to its containers.

    Attributes:
        values: the device's attributes.
    """

    record: records.PreparedDevice
    values: Mapping[str, attributes.Value]


class Files:
    """The files of this node. Every method blocks: call it in a thread."""

    def __init__(self, directory: Path, driver: str, *, enabled: bool) -> None:
        """Read and write nothing yet.

        Args:
            directory: the driver's directory at the kubelet, with the same path on the host.
            driver: the name of the DRA driver.
            enabled: whether to write files; existing files are removed with their claims in any case.
        """
        self.enabled = enabled
        self._folder = directory / FOLDER
        self._driver = driver

    def mounts(self, claim: claims.ResourceClaim, requests: Sequence[str]) -> tuple[records.Mount, ...]:
        """Return the mounts of the files of these requests.

        Raises:
            errors.PrepareError: a name cannot be part of a path.
        """
        folders = (
            ("resourceclaimtemplates", claim.pod_claim)
            if claim.pod_claim
            else ("resourceclaims", claim.metadata.name)
        )
        _check(claim, folders[1], *requests)
        return tuple(
            records.Mount(
                host_path=str(self._file(claim.metadata.uid, request)),
                container_path="/".join((ROOT, *folders, request, f"{self._driver}-metadata.json")),
            )
            for request in requests
        )

    def write(self, claim: claims.ResourceClaim, described: Sequence[DescribedDevice]) -> None:
        """Write the files of a claim. A file with equal content stays.

        Raises:
            errors.PrepareError: a file cannot be written.
        """
        for request, document in documents(claim, self._driver, described).items():
            file = self._file(claim.metadata.uid, request)
            before = _generation(file, document)
            if before is None:
                continue
            document["metadata"]["generation"] = before + 1
            raw = msgspec.json.Encoder().encode_lines(_versions(document))
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                sharedfiles.replace(str(file), raw, sync=False)
                file.chmod(0o444)
            except OSError as error:
                raise errors.PrepareError(
                    f"cannot write {file}: {error.strerror}; mount {self._folder.parent} read-write, with room on it",
                    reason=reasons.DEVICE_METADATA_FAILED,
                ) from error

    def remove(self, uid: str) -> None:
        """Remove the files of a claim, if there are any.

        Raises:
            errors.PrepareError: the files cannot be removed.
        """
        if not _UID.fullmatch(uid):
            return
        try:
            shutil.rmtree(self._folder / uid)
        except FileNotFoundError:
            return
        except OSError as error:
            raise errors.PrepareError(
                f"cannot remove {self._folder / uid}: {error.strerror}; mount {self._folder.parent} read-write",
                reason=reasons.DEVICE_METADATA_FAILED,
            ) from error

    def owners(self) -> frozenset[str]:
        """Return the UIDs of the claims with files."""
        try:
            return frozenset(os.listdir(self._folder))  # noqa: PTH208 - names alone
        except OSError:
            return frozenset()

    def _file(self, uid: str, request: str) -> Path:
        return self._folder / uid / f"{request}{SUFFIX}"


def documents(
    claim: claims.ResourceClaim, driver: str, described: Sequence[DescribedDevice]
) -> dict[str, dict[str, Any]]:
    """Return the content of each request's file, without version and generation.

    The name of a request with alternatives includes the chosen one. The members of a composite are listed one by one.
    """
    full = {
        result.request.split("/", 1)[0]: result.request
        for result in (claim.status.allocation.devices.results if claim.status.allocation is not None else ())
        if result.driver == driver
    }
    by_request: dict[str, list[dict[str, Any]]] = {}
    for device in described:
        for request in device.record.requests:
            by_request.setdefault(request, []).append(_device(driver, device))
    metadata = claim.metadata
    return {
        request: {
            "kind": KIND,
            "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
            **({"podClaimName": claim.pod_claim} if claim.pod_claim else {}),
            "requests": [{"name": full.get(request, request), "devices": devices}],
        }
        for request, devices in by_request.items()
    }


def _device(driver: str, device: DescribedDevice) -> dict[str, Any]:
    record = device.record
    attributes = {name: _attribute(value) for name, value in sorted(device.values.items())}
    network = record.network
    return {
        "driver": driver,
        "pool": record.pool,
        "name": record.device,
        **({"attributes": attributes} if attributes else {}),
        **({"networkData": msgspec.to_builtins(network)} if network is not None else {}),
    }


def _attribute(value: attributes.Value) -> dict[str, str | int | bool]:
    if isinstance(value, attributes.Version):
        return {"version": value.text}
    # In Python a bool is an int, so it is tested first.
    kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string"
    return {kind: value}


def _versions(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"apiVersion": version, **document} for version in API_VERSIONS]


def _generation(file: Path, document: Mapping[str, Any]) -> int | None:
    """Return the generation of the existing file, 0 without a readable one; None if its content is equal."""
    try:
        with file.open("rb") as opened:
            before = msgspec.json.Decoder(dict[str, Any]).decode_lines(opened.read(FILE_BYTES))
        generation = max(msgspec.convert(stored["metadata"].pop("generation"), int) for stored in before)
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return 0
    return None if before == _versions(document) else generation


def _check(claim: claims.ResourceClaim, *names: str) -> None:
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise errors.PrepareError(
                f"claim {claim.metadata.namespace}/{claim.metadata.name} has the name {name[:64]!r}, which no file can have; "
                "turn off deviceMetadata of the node, or create the claim again",
                reason=reasons.DEVICE_METADATA_FAILED,
            )


def mount(
    devices: Sequence[records.PreparedDevice], claim: claims.ResourceClaim, files: Files
) -> tuple[records.PreparedDevice, ...]:
    """Return the devices with their mounts: the first device of each request has the mount of the request's file.

    Raises:
        errors.PrepareError: a name cannot be part of a path.
    """
    done: set[str] = set()
    listed = []
    for device in devices:
        fresh = tuple(request for request in device.requests if request not in done)
        done.update(fresh)
        listed.append(msgspec.structs.replace(device, mounts=files.mounts(claim, fresh)))
    return tuple(listed)
