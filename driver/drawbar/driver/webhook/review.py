"""What the webhook answers, decided purely: an AdmissionReview in, an AdmissionReview out.

Refused is what the controller and the node daemon would refuse whatever the rest of the cluster looks like. What hangs
on the DeviceClass of a claim is theirs to say, since the class may change. Never refused: objects that are on their
way out, and an update that leaves the parameters as they are; else a finalizer could not be removed from what an older
version let in.

Claims have had their configuration in the same place in each version of `resource.k8s.io` since v1alpha3.
Source: `admission.k8s.io/v1` AdmissionReview.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from drawbar.driver.api import meta, parameters

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
GROUP = "resource.k8s.io"
ALPHA = "v1alpha3"
# 422 is what the API server itself says of a field that cannot be.
UNPROCESSABLE = 422

_PLACES = {
    "ResourceClaim": (("spec", "devices", "config"), parameters.Source.CLAIM),
    "ResourceClaimTemplate": (("spec", "spec", "devices", "config"), parameters.Source.CLAIM),
    "DeviceClass": (("spec", "config"), parameters.Source.CLASS),
}


class Kind(meta.Struct, frozen=True):
    """What sort of object is judged."""

    group: str = ""
    version: str = ""
    kind: str = ""


class Request(meta.Struct, frozen=True):
    """One write.

    Attributes:
        object: as it is to be; None for a deletion.
        old_object: as it was; None for a creation.
    """

    uid: str
    kind: Kind
    operation: str = ""
    object: Any = None
    old_object: Any = None


class Review(meta.Struct, frozen=True):
    """What the API server sends."""

    api_version: str
    kind: str
    request: Request


class Unreadable(Exception):
    """The caller sent something else than an AdmissionReview."""


def read(body: bytes) -> Request:
    """The request in a review.

    Raises:
        Unreadable: there is none, or it is of another version.
    """
    try:
        found = msgspec.json.decode(body, type=Review)
    # Brackets within brackets without end are a RecursionError.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"this is no {KIND}: {error}") from error
    if (found.api_version, found.kind) != (API_VERSION, KIND):
        raise Unreadable(
            f"this is a {found.kind[:64]} of {found.api_version[:64]}; send a {KIND} of {API_VERSION}"
        )
    return found.request


def answer(request: Request, driver: str) -> dict[str, Any]:
    """The review that goes back."""
    found = tuple(problems(request, driver))
    response: dict[str, Any] = {"uid": request.uid, "allowed": not found}
    if found:
        message = str(parameters.Invalid(found))
        response["status"] = {
            "status": "Failure",
            "reason": "Invalid",
            "code": UNPROCESSABLE,
            "message": message,
        }
    return {"apiVersion": API_VERSION, "kind": KIND, "response": response}


def problems(request: Request, driver: str) -> Iterator[str]:
    """What is wrong with the driver's parameters in the object, each with its place."""
    place = _PLACES.get(request.kind.kind)
    if place is None or request.kind.group != GROUP or _is_leaving(request.object):
        return
    path, source = place
    before, after = _at(request.old_object, path), _at(request.object, path)
    if before == after:
        return
    # That it is a list of objects is the API server's to see to.
    for index, entry in enumerate(after if isinstance(after, list) else ()):
        opaque = _at(entry, ("opaque",))
        if not isinstance(opaque, dict) or opaque.get("driver") != driver:
            continue
        wanted = opaque.get("parameters")
        if request.kind.version == ALPHA and _at(wanted, ("kind",)) == parameters.ALLOCATION_KIND:
            # The controller that allocates there reads them.
            continue
        where = f"{'.'.join(path)}[{index}].opaque.parameters"
        try:
            parameters.decode(wanted, source, path=where)
        except parameters.Invalid as invalid:
            yield from invalid.problems


def _is_leaving(found: Any) -> bool:
    return _at(found, ("metadata", "deletionTimestamp")) is not None


def _at(found: Any, path: tuple[str, ...]) -> Any:
    """What stands at a place; None where there is nothing."""
    for key in path:
        if not isinstance(found, dict):
            return None
        found = found.get(key)
    return found
