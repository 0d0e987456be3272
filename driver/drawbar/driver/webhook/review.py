"""The webhook's answers, decided purely: an AdmissionReview in, an AdmissionReview out.

The webhook refuses parameters that the controller and the node daemon would refuse in any state of the cluster. It
leaves problems that depend on a claim's DeviceClass to them, since the class may change. It never refuses objects
that are being deleted, or an update that leaves the parameters unchanged. Otherwise a finalizer could not be removed
from an object that an older version admitted.

The client is not authenticated, so the work for a question is bounded: only an object's configuration is read, and
only `ENTRIES_MAX` entries of `PARAMETERS_BYTES`. The decoder skips the rest.

Claims have had their configuration in the same place in each version of `resource.k8s.io` since v1alpha3. Source:
`admission.k8s.io/v1` AdmissionReview.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from drawbar.driver.api import meta, parameters
from drawbar.driver.kube import decoding

T = TypeVar("T")

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
GROUP = "resource.k8s.io"
ALPHA = "v1alpha3"
# The API server itself answers 422 for an invalid field.
UNPROCESSABLE = 422

# The API server accepts 32 entries, each with parameters of 10 KiB, and may write them six times as long.
ENTRIES_MAX = 32
PARAMETERS_BYTES = 64 * 1024
CONFIGURATION_BYTES = ENTRIES_MAX * (PARAMETERS_BYTES + 16 * 1024)

_PARAMETER_PATHS = {
    "ResourceClaim": (("devices",), parameters.Source.CLAIM),
    "ResourceClaimTemplate": (("spec", "devices"), parameters.Source.CLAIM),
    "DeviceClass": ((), parameters.Source.CLASS),
}
_NOTHING = msgspec.Raw(b"null")


class Kind(meta.Struct, frozen=True):
    """The type of the checked object."""

    group: str = ""
    version: str = ""
    kind: str = ""


class Request(meta.Struct, frozen=True):
    """One write.

    Attributes:
        object: the new state, in JSON; null for a deletion.
        old_object: the old state; null for a creation.
    """

    uid: str
    kind: Kind
    operation: str = ""
    object: msgspec.Raw = _NOTHING
    old_object: msgspec.Raw = _NOTHING


class Review(meta.Struct, frozen=True):
    """The API server's question."""

    api_version: str
    kind: str
    request: Request


class Unreadable(Exception):
    """The body is no AdmissionReview."""


def read(body: bytes) -> Request:
    """Return the request in a review.

    Raises:
        Unreadable: there is no request, or it has another version.
    """
    try:
        decoded = decoding.decode(body, Review)
    except decoding.Malformed as error:
        raise Unreadable(f"this is no {KIND}: {error}") from error
    if (decoded.api_version, decoded.kind) != (API_VERSION, KIND):
        raise Unreadable(
            f"this is a {decoded.kind[:64]} of {decoded.api_version[:64]}; send a {KIND} of {API_VERSION}"
        )
    return decoded.request


def answer(request: Request, driver: str) -> dict[str, Any]:
    """Return the review with the response."""
    listed = tuple(problems(request, driver))
    response: dict[str, Any] = {"uid": request.uid, "allowed": not listed}
    if listed:
        message = str(parameters.Invalid(listed))
        response["status"] = {
            "status": "Failure",
            "reason": "Invalid",
            "code": UNPROCESSABLE,
            "message": message,
        }
    return {"apiVersion": API_VERSION, "kind": KIND, "response": response}


def problems(request: Request, driver: str) -> Iterator[str]:
    """Yield the problems of the driver's parameters in the object, each with its place."""
    found = _PARAMETER_PATHS.get(request.kind.kind)
    if found is None or request.kind.group != GROUP:
        return
    path, source = found
    written = _decode(request.object, _Object)
    if written is None or written.metadata.deletion_timestamp is not None:
        return
    after = _entries(written, path)
    where = ".".join(("spec", *path, "config"))
    if after is None:
        yield f"{where} is larger than any configuration that the API server takes"
        return
    ours = {index: entry.parameters for index, entry in after.items() if entry.driver == driver}
    former = _decode(request.old_object, _Object)
    before = (_entries(former, path) if former is not None else None) or {}
    if ours == {index: entry.parameters for index, entry in before.items() if entry.driver == driver}:
        return
    for index, wanted in ours.items():
        entry = f"{where}[{index}].opaque.parameters"
        if isinstance(wanted, _TooMuch):
            yield f"{entry}{wanted.clause}"
        elif request.kind.version == ALPHA and _kind(wanted) == parameters.ALLOCATION_KIND:
            # The controller that allocates there reads them.
            continue
        else:
            try:
                parameters.decode(wanted, source, path=entry)
            except parameters.Invalid as invalid:
                yield from invalid.problems


class _Metadata(meta.Struct, frozen=True):
    deletion_timestamp: Any = None


class _Spec(meta.Struct, frozen=True):
    config: msgspec.Raw = _NOTHING
    devices: msgspec.Raw = _NOTHING
    spec: msgspec.Raw = _NOTHING


class _Object(meta.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: msgspec.Raw = _NOTHING


class _RawOpaque(meta.Struct, frozen=True):
    driver: str = ""
    parameters: msgspec.Raw = _NOTHING


class _Entry(meta.Struct, frozen=True):
    opaque: _RawOpaque | None = None


class _TooMuch(meta.Struct, frozen=True):
    """Parameters that are too large to read; equal parameters still compare as equal."""

    clause: str
    written: bytes


class _Opaque(meta.Struct, frozen=True):
    """Parameters, read within their limit."""

    driver: str
    parameters: Any


def _entries(decoded: _Object, path: tuple[str, ...]) -> Mapping[int, _Opaque] | None:
    """Return the opaque configurations by their places in the list, or None if there are too many.

    The API server ensures that this is a list of objects; other content is skipped.
    """
    held = decoded.spec
    for key in (*path, "config"):
        spec = _decode(held, _Spec)
        if spec is None:
            return {}
        held = getattr(spec, key)
    text = bytes(held)
    if len(text) > CONFIGURATION_BYTES:
        return None
    entries = _decode(held, list[msgspec.Raw]) or []
    if len(entries) > ENTRIES_MAX:
        return None
    read = {index: _decode(raw, _Entry) for index, raw in enumerate(entries)}
    return {
        index: _Opaque(driver=entry.opaque.driver, parameters=_parameters(entry.opaque.parameters))
        for index, entry in read.items()
        if entry is not None and entry.opaque is not None
    }


def _parameters(raw: msgspec.Raw) -> Any:
    text = bytes(raw)
    if len(text) > PARAMETERS_BYTES:
        return _TooMuch(clause=f" are larger than {PARAMETERS_BYTES // 1024} KiB", written=text)
    try:
        return decoding.decode(text, object)
    except decoding.Malformed:
        return _TooMuch(clause=" are nested too deeply, or hold a number that is too long", written=text)


def _decode(raw: msgspec.Raw, into: type[T]) -> T | None:
    """Decode the value, or return None if it has another form."""
    try:
        return decoding.decode(raw, into)
    except decoding.Malformed:
        return None


def _kind(decoded: Any) -> Any:
    return decoded.get("kind") if isinstance(decoded, dict) else None
