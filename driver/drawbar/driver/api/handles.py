"""The versioned document by which an allocation of classic dynamic resource allocation reaches the kubelet plugin.

The controller writes it when it allocates: with v1alpha2 it is `resourceHandles[].data`, which the kubelet hands to the
plugin; with v1alpha3 it stands among `allocation.devices.config[]` as opaque parameters of this driver, where each
reader of the claim finds it. It names the devices, so that the plugin needs neither the class nor the claim's parameters,
which may be gone by then. A claim that gets no device (its request is optional) has none in it.

Source: KEP-3063, "ResourceHandle extensions"; `resource.k8s.io/v1alpha2` ResourceHandle (data has at most 16 KiB).
"""

from typing import Any

import msgspec

from drawbar.driver import errors
from drawbar.driver.api import meta

API_VERSION = "drawbar.dev/v1alpha1"
KIND = "AllocationHandle"
DATA_BYTES = 16 * 1024
SHOWN_CHARS = 60

WHOLE_CLAIM = "claim"
"""The name of the one request of a v1alpha2 claim, whose requests have no names."""


class InvalidHandle(errors.DrawbarError):
    """The text is no handle of this driver, or has an unknown version."""


class TooLarge(errors.DrawbarError):
    """The handle has no room in an allocation: the claim asks for too many devices."""


class HandleDevice(meta.Struct, frozen=True):
    """One device of the allocation.

    Attributes:
        request: the claim's request for it; `WHOLE_CLAIM` with v1alpha2.
        fabric: name of the Fabric.
        pool: DRA pool.
        device: DRA name of the device.
        attachment: name of its DeviceAttachment.
    """

    request: str
    fabric: str
    pool: str
    device: str
    attachment: str


class Handle(meta.Struct, frozen=True):
    """One allocation.

    Attributes:
        node: the devices' node.
        allocated_at: `spec.allocationTimestamp` of the DeviceAttachments; it distinguishes this allocation from
            others of the same claim.
        devices: none for a claim without a device.
        without: the requests without a device.
    """

    node: str = ""
    allocated_at: str = ""
    devices: tuple[HandleDevice, ...] = ()
    without: tuple[str, ...] = ()


def document(handle: Handle) -> dict[str, Any]:
    """Return the handle with its version and kind, as JSON values."""
    content: dict[str, Any] = msgspec.to_builtins(handle)
    return {"apiVersion": API_VERSION, "kind": KIND} | content


def encode(handle: Handle) -> str:
    """Return the handle as one line of JSON.

    Raises:
        TooLarge: it has more than `DATA_BYTES`.
    """
    text = msgspec.json.encode(document(handle)).decode()
    if len(text.encode()) > DATA_BYTES:
        raise TooLarge(
            f"the allocation of {len(handle.devices)} devices takes {len(text.encode())} bytes, and a ResourceHandle has "
            f"room for {DATA_BYTES}; ask for fewer devices in one claim"
        )
    return text


def decode(data: str) -> Handle:
    """Return the handle in a ResourceHandle's data.

    Raises:
        InvalidHandle: it holds none.
    """
    try:
        content = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidHandle(f"{_quote(data)} is not JSON: {error}") from error
    except RecursionError as error:
        raise _too_deep() from error
    return from_document(content)


def from_document(content: object) -> Handle:
    """Return the handle in JSON values; unknown fields, perhaps of a newer controller, are skipped.

    Raises:
        InvalidHandle: they hold none.
    """
    try:
        if not is_handle(content):
            raise InvalidHandle(f"{_quote(str(content))} is no {KIND} of {API_VERSION}")
        return msgspec.convert(content, Handle)
    except msgspec.ValidationError as error:
        raise InvalidHandle(f"the {KIND} cannot be read: {error}") from error
    except RecursionError as error:
        raise _too_deep() from error


def is_handle(content: object) -> bool:
    """Return whether JSON values have the API version and kind of a handle."""
    return isinstance(content, dict) and (content.get("apiVersion"), content.get("kind")) == (
        API_VERSION,
        KIND,
    )


def _too_deep() -> InvalidHandle:
    return InvalidHandle(f"its JSON is nested too deeply for an {KIND}")


def _quote(text: str) -> str:
    return repr(text) if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]!r}..."
