"""The addresses of a service's links, all on the configured origin; pure.

A manager behind a proxy knows itself by another name, scheme or port. Of such a link only path and query count.
"""

import re
from collections import OrderedDict

import yarl

from drawbar.fabric.redfish import documents

# As a value of JSON: a path with a slash at its end, or with capitals in its prefix.
_ODD = re.compile(rb'"(/[^"\\\s?#]{1,1000}/|/(?!redfish/)(?i:redfish)/[^"\\\s?#]{1,1000})"')
WRITTEN_MAX = 16_384


class Foreign(ValueError):
    """A link that leads to another host, or is no URI; the text is a clause about the service."""


class Addresses:
    """The addresses of one service."""

    def __init__(self, base: yarl.URL) -> None:
        self._origin = base.origin()
        # By the normal form, paths as the service writes them; some serve nothing in another form.
        self._written: OrderedDict[str, str] = OrderedDict()

    def note(self, raw: bytes) -> None:
        """Remember the paths of an answer that are not in the normal form."""
        for match in _ODD.finditer(raw):
            written = match[1].decode(errors="replace")
            self._written[documents.path(written)] = written
            if len(self._written) > WRITTEN_MAX:
                self._written.popitem(last=False)

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
            written = yarl.URL(self._written.get(documents.path(url.raw_path), "")).raw_path
        except ValueError as error:
            raise Foreign("sent one that is no URI") from error
        is_own = not is_elsewhere or (url.path.lower().startswith("/redfish/") and redirected is None)
        if url.user is not None or not is_own:
            raise Foreign("sent one that leads to another host")
        if is_elsewhere:
            url = self._origin.join(yarl.URL(url.raw_path_qs, encoded=True))
        return url.with_path(written, encoded=True, keep_query=True) if written else url
