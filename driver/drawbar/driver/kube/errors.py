"""The errors between Drawbar and the API server, split by the caller's possible reactions.

    KubeError
    ├── ConfigError            no usable kubeconfig or service account
    ├── Unreachable            no answer: retry with back-off
    │   └── Throttled          429, and 5xx with Retry-After: wait for `retry_after_seconds`
    ├── NotFound               404: the object is gone (on delete: success)
    ├── Conflict               409, and 422 for another uid: the view was stale: read again, decide again
    │   └── AlreadyExists      409: an object of this name exists
    ├── Expired                410: the resourceVersion is too old: list again
    ├── TooLarge               the answer is more than is read: ask for less
    ├── Invalid                400, 415, 422: the request itself is wrong: do not retry
    └── Denied                 403: a permission is missing: do not retry soon
        └── Unauthenticated    401: the credentials are unknown or expired

Messages are the API server's own words, cut, with the request in front.
"""

import logging

from drawbar.driver import errors
from drawbar.driver.errors import ExitStatus


class KubeError(errors.DrawbarError):
    """The base of all errors of this component."""

    ends_daemon = False


class ConfigError(KubeError):
    """There is no usable kubeconfig and no service account."""

    exit_code = ExitStatus.USAGE
    ends_daemon = True


class Unreachable(KubeError):
    """The API server gave no usable answer (network, 5xx, broken stream)."""

    exit_code = ExitStatus.UNREAD


class Throttled(Unreachable):
    """The API server asked for a pause.

    Attributes:
        retry_after_seconds: the requested pause.
    """

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class NotFound(KubeError):
    """The object, or the resource type, does not exist."""


class Conflict(KubeError):
    """The object changed since it was read, or another manager owns the field."""


class AlreadyExists(Conflict):
    """An object of that name exists already."""


class Expired(KubeError):
    """The resourceVersion to watch or list from is no longer kept."""

    exit_code = ExitStatus.UNREAD


class TooLarge(KubeError):
    """The answer is larger than any one object of an API server by default, and was not read."""


class Invalid(KubeError):
    """The API server refuses the content of the request."""


class Denied(KubeError):
    """The API server does not allow this."""

    exit_code = ExitStatus.UNREAD


class Unauthenticated(Denied):
    """The API server does not know these credentials."""


def level(error: Exception) -> int:
    """Return the log level of a failed attempt that is repeated: INFO for a stale view, else WARNING."""
    return logging.INFO if isinstance(error, Conflict) else logging.WARNING
