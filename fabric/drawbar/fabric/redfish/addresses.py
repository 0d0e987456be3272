"""The addresses of a service's links, all on the configured origin; pure.

A manager behind a proxy knows itself by another name, scheme or port. Of such a link only path and query count.
"""

import re
from collections import OrderedDict

import yarl

# A URI with a slash at its end, as a value of JSON.
_SLASHED = re.compile(rb'"(/[^"\\\s]{1,1000})/"')
SLASHED_MAX = 16_384


class Foreign(ValueError):
    """A link that leads to another host, or is no URI; the text is a clause about the service."""


class Addresses:
    """The addresses of one service."""

    def __init__(self, base: yarl.URL) -> None:
        self._origin = base.origin()
        # Paths that the service writes with a slash at the end; some serve nothing without it.
        self._slashed: OrderedDict[str, None] = OrderedDict()

    def note(self, raw: bytes) -> None:
        """Remember which paths of an answer end with a slash."""
        for match in _SLASHED.finditer(raw):
            self._slashed[match[1].decode(errors="replace")] = None
            if len(self._slashed) > SLASHED_MAX:
                self._slashed.popitem(last=False)

    def resolve(self, uri: str, redirected: yarl.URL | None = None) -> yarl.URL:
        """Return the address of a resource on the configured origin.

        A redirect to another origin is deliberate, and refused.

        Args:
            uri: of the resource.
            redirected: the address of a redirected request, to which the URI is relative; None for a link.

        Raises:
            Foreign: the address is not one of Redfish.
        """
        try:
            url = (redirected or self._origin).join(yarl.URL(uri))
            is_elsewhere = url.origin() != self._origin
        except ValueError as error:
            raise Foreign("sent one that is no URI") from error
        is_own = not is_elsewhere or (url.path.startswith("/redfish/") and redirected is None)
        if url.user is not None or not is_own:
            raise Foreign("sent one that leads to another host")
        if is_elsewhere:
            url = self._origin.join(yarl.URL(url.raw_path_qs, encoded=True))
        if url.raw_path in self._slashed:
            url = url.with_path(url.raw_path + "/", encoded=True, keep_query=True)
        return url
