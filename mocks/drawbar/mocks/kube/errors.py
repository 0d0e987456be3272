"""The errors between a double and the API server, split by the caller's possible reactions.

KubeError
├── ConfigError        there is no usable kubeconfig or service account
├── Unreachable        no answer, 429 or 5xx: try again
├── NotFound           404: the object or its kind does not exist
├── Conflict           409, or 422 for another uid: read again
│   └── AlreadyExists  an object of that name exists
├── Expired            410: list again
├── Denied             401 and 403: a permission or the identity is missing
└── Invalid            every other refusal: the request is wrong
"""

from collections.abc import Mapping

import msgspec

from drawbar.mocks import errors


class KubeError(errors.MockError):
    """The base of the errors.

    Attributes:
        retry_after_seconds: the pause that the API server asked for.
    """

    retry_after_seconds = 0.0


class ConfigError(KubeError):
    """There is no usable kubeconfig and no service account."""

    exit_code = 2


class Unreachable(KubeError):
    """The API server gave no usable answer."""

    exit_code = 3


class NotFound(KubeError):
    """The object, or its kind, does not exist."""


class Conflict(KubeError):
    """The object changed, or another object has its name."""


class AlreadyExists(Conflict):
    """An object of that name exists."""


class Expired(KubeError):
    """The resourceVersion is too old."""


class Denied(KubeError):
    """The API server does not allow the request."""

    exit_code = 3


class Invalid(KubeError):
    """The request is wrong."""


class _Cause(msgspec.Struct):
    field: str = ""


class _Details(msgspec.Struct):
    causes: tuple[_Cause, ...] | None = None


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    details: _Details | None = None


MESSAGE_CHARS = 500
_BY_CODE: Mapping[int, type[KubeError]] = {
    401: Denied,
    403: Denied,
    404: NotFound,
    409: Conflict,
    410: Expired,
    429: Unreachable,
}


def refusal(request: str, code: int, body: bytes, retry_after: str = "") -> KubeError:
    """Return the error of a refused request.

    Args:
        request: the method and path, for the message.
        code: the HTTP status.
        body: the answer, usually a `metav1.Status`.
        retry_after: the header of this name.
    """
    try:
        status = msgspec.json.decode(body, type=_Status)
    except msgspec.MsgspecError:
        status = _Status(message=body.decode(errors="replace"))
    made = _BY_CODE.get(code, Unreachable if code >= 500 else Invalid)
    causes = (status.details.causes if status.details is not None else None) or ()
    if code == 409 and status.reason == "AlreadyExists":
        made = AlreadyExists
    elif code == 422 and any(cause.field == "metadata.uid" for cause in causes):
        made = Conflict
    error = made(f"{request}: {code} {' '.join(status.message.split())[:MESSAGE_CHARS]}")
    if retry_after.isdecimal():
        error.retry_after_seconds = float(retry_after)
    return error
