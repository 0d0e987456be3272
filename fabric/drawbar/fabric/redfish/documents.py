"""Resources of a Redfish service, read without trust in their form.

A service may omit any property, or send one of a type outside the schema. Then every reader here returns None or
nothing, so that one odd resource affects only its own device.
"""

import functools
import posixpath
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from drawbar.fabric import errors

# Any JSON value; it is foreign, so each property is checked.
Json = Mapping[str, Any]

ID = "@odata.id"
ETAG = "@odata.etag"
TYPE = "@odata.type"
# Of an array of links: some services have these where nothing is.
NOTHING: tuple[Json | None, ...] = (None, {}, {ID: ""})
# The contract's wire has no room for longer ids, names or models.
TEXT_BYTES = 128
_USER_INFO = re.compile(r"//[^/]*@")
_AUTHORITY = re.compile(r"^(?:https?:)?//[^/?#@\\\s]+(?=/redfish/)", re.IGNORECASE)
# Some services leave out the first slash.
_BARE = re.compile(r"^redfish/", re.IGNORECASE)
# Properties of every resource.
_NAMES = frozenset({"Description", "Id", "Name"})
# The depth to which the links of a body are followed.
_LINK_LEVELS = 8
_QUERY = re.compile(r"(?=[?#])")
# Of a path that is not in its normal form.
_ODD_PATH = re.compile(r"[^!-~]|%|.//|/\.|^/(?!redfish/)(?i:redfish)/")
_PREFIX = re.compile(r"^/redfish/", re.IGNORECASE)
_ENCODED = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")
# Some services write numbers as text, with separators, the unit of the property, or as `x16` and `45 %`.
_NUMBER = re.compile(r"[0-9]{1,19}(\.[0-9]{1,9})?")
_SEPARATOR = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_AROUND_NUMBER = re.compile(r"^x(?=[0-9])|\s*%$", re.IGNORECASE)
# Of texts from a device's memory, which firmware pads with zeros or ones.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_PADDING = " \u00ff\ufffd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One resource.

    Attributes:
        uri: its path on the service, without a trailing slash.
        body: its properties.
        etag: of the moment of the reading; None if the service sends none.
    """

    uri: str
    body: Json = field(default_factory=dict)
    etag: str | None = None

    @classmethod
    def from_json(cls, body: Json, *, uri: str = "", etag: str | None = None) -> "Document":
        """Return the resource with the requested URI, or else its own; with the ETag of the answer, or else its own.

        If it names another resource than the requested one, it is wrong: a change would affect that other resource.
        """
        shown, own_etag = body.get(ID), body.get(ETAG)
        return cls(
            uri=path(uri or (shown if isinstance(shown, str) else "")),
            body=body,
            etag=etag or (own_etag if isinstance(own_etag, str) and own_etag else None),
        )

    @property
    def id(self) -> str:
        """Return the resource's `Id`, or the last part of its URI. It is not cut, since two cut ids could be equal."""
        own = self.value("Id")
        return own if isinstance(own, str) and own else self.uri.rpartition("/")[2]

    @property
    def is_reference(self) -> bool:
        """Return whether this is only the link to a resource, and not the resource."""
        return not any(name for name in self.body if not name.startswith("@"))

    @property
    def is_stub(self) -> bool:
        """Return whether this shows no more than the names of a resource, or an error in its place."""
        shown = {f"{name[:1].upper()}{name[1:]}" for name in self.body if not name.startswith("@")}
        return shown <= _NAMES or shown == {"Error"}

    def value(self, *names: str) -> Any:
        """Return the value below these properties, or None."""
        return value(self.body, *names)

    def text(self, *names: str) -> str:
        """Return the text below these properties, cut to `TEXT_BYTES`, or an empty one."""
        return text(self.body, *names)

    def number(self, *names: str) -> int:
        """Return the number below these properties, or 0; never a negative one."""
        return number(self.body, *names)

    def objects(self, *names: str) -> tuple[Json, ...]:
        """Return the objects in the array below these properties."""
        return objects(self.body, *names)

    def link(self, *names: str) -> str | None:
        """Return the URI that these properties link to, or None."""
        return link(self.value(*names))

    def links(self, *names: str) -> tuple[str, ...]:
        """Return the URIs in the array of links below these properties, each once."""
        listed = self.value(*names)
        uris = map(link, listed if isinstance(listed, list) else [listed])
        return tuple(dict.fromkeys(uri for uri in uris if uri))

    def is_cut(self, *names: str) -> bool:
        """Return whether the array below these properties counts more entries than it has, goes on elsewhere, or has others than links."""
        *owners, name = names
        listed = self.value(*names)
        entries = [each for each in (listed if isinstance(listed, list) else [listed]) if each not in NOTHING]
        # The link to a collection is not the link to a member, and a relative one has no known base.
        is_clear = all(
            (uri := link(each)) and uri.startswith("/") and not uri.endswith(f"/{name}") for each in entries
        )
        is_continued = bool(self.value(*owners, f"{name}@odata.nextLink"))
        return is_continued or not is_clear or self.number(*owners, f"{name}@odata.count") > len(entries)

    def find_links_path(self, name: str) -> tuple[str, ...]:
        """Return the properties that lead to an array of links: below `Links`, or at the top as in Intel's Rack Scale Design."""
        is_at_top = not self.value("Links", name) and isinstance(self.value(name), list)
        return (name,) if is_at_top else ("Links", name)

    def action(self, name: str) -> str | None:
        """Return the target of the action, such as `#Zone.AddEndpoint`, or None if the resource does not offer it."""
        target = self.value("Actions", name, "target")
        return path(target) if isinstance(target, str) and target else None


@functools.cache
def _spell(name: str) -> tuple[str, ...]:
    """Return the spellings of a property's name: some services write another case than the schema's."""
    return tuple(dict.fromkeys((name, f"{name[:1].lower()}{name[1:]}", name.lower())))


def value(body: Json, *names: str) -> Any:
    """Return the value below these properties, or None."""
    current: Any = body
    for name in names:
        if isinstance(current, list) and len(current) == 1:
            # Some services send an array where an object belongs.
            current = current[0]
        if not isinstance(current, dict):
            return None
        shown: Any = None
        for spelled in _spell(name):
            if (shown := current.get(spelled)) is not None:
                break
        current = shown
    return current


def text(body: Json, *names: str) -> str:
    """Return the text below these properties, cut to `TEXT_BYTES`, or an empty one."""
    return errors.cut(as_text(value(body, *names)), TEXT_BYTES)


def as_text(content: Any) -> str:
    """Return a text without padding, or a whole number as text, or an empty one: some services send serial numbers as numbers."""
    if isinstance(content, int) and not isinstance(content, bool) and abs(content) < 1 << 128:
        return str(content)
    return _CONTROL.sub(" ", content).strip(_PADDING) if isinstance(content, str) else ""


def word(body: Json, *names: str) -> str:
    """Return the text below these properties without blanks and in lower case, by which values of an enumeration are compared."""
    return "".join(text(body, *names).split()).casefold()


def words(body: Json, *names: str) -> frozenset[str]:
    """Return the texts in the array below these properties, each as `word`; a text in place of the array is its only one."""
    listed = value(body, *names)
    texts = map(as_text, listed if isinstance(listed, list) else [listed])
    return frozenset("".join(each.split()).casefold() for each in texts)


def is_true(content: Any) -> bool:
    """Return whether a value is true, also as text or as 1."""
    return content == 1 or (isinstance(content, str) and content.strip().lower() == "true")


def number(body: Json, *names: str) -> int:
    """Return the number below these properties, or 0; never a negative one."""
    content = value(body, *names)
    # Of the characters that strip removes, int and float accept most, and not U+001C to U+001F.
    shown = content.strip() if isinstance(content, str) else ""
    if shown and not shown.isdecimal():
        unit = "MiB" if names[-1].endswith("MiB") else ""
        shown = _AROUND_NUMBER.sub("", _SEPARATOR.sub("", shown.removesuffix(unit).rstrip()))
    if _NUMBER.fullmatch(shown):
        content = float(shown) if "." in shown else int(shown)
    is_number = isinstance(content, int | float) and not isinstance(content, bool)
    return int(content) if is_number and 0 < content < 2**63 else 0


def objects(body: Json, *names: str) -> tuple[Json, ...]:
    """Return the objects in the array below these properties; an object in place of the array counts as its only one."""
    listed = value(body, *names)
    if isinstance(listed, dict) and listed:
        return (listed,)
    return tuple(entry for entry in listed if isinstance(entry, dict)) if isinstance(listed, list) else ()


def link(reference: Any) -> str | None:
    """Return the URI of a reference such as `{"@odata.id": "/redfish/v1/Systems/1"}`, or None.

    Some services send the URI alone, or an array with the reference.
    """
    if isinstance(reference, list) and len(reference) == 1:
        reference = reference[0]
    if isinstance(reference, str) and (reference.startswith("/") or _is_complete(reference)):
        return path(reference)
    uri = reference.get(ID) if isinstance(reference, dict) else None
    return path(uri) if isinstance(uri, str) and uri else None


def _is_complete(uri: str) -> bool:
    """Return whether a URI without a slash at its beginning is a path of Redfish, or has an authority before it."""
    return _AUTHORITY.match(uri) is not None or _BARE.match(uri) is not None


def links_in(body: Any, levels: int = _LINK_LEVELS) -> Iterator[str]:
    """Yield the URI of each reference in a body, at most so many levels deep."""
    if levels == 0:
        return
    if isinstance(body, dict):
        uri = link(body)
        if uri is not None:
            yield uri
        body = list(body.values())
    if isinstance(body, list):
        for entry in body:
            yield from links_in(entry, levels - 1)


def references(uris: Iterable[str]) -> list[dict[str, str]]:
    """Return the links in the form of a request's body."""
    return [{ID: uri} for uri in uris]


def plain(uri: str) -> str:
    """Return the path without its query, by which members of an array are compared."""
    return path(_QUERY.split(uri, maxsplit=1)[0])


def index_spellings(uris: Iterable[str]) -> dict[str, str]:
    """Return the URIs by their key (`build_key`), without those that have a key in common."""
    by_key: dict[str, list[str]] = {}
    for uri in uris:
        by_key.setdefault(build_key(uri), []).append(uri)
    return {key: listed[0] for key, listed in by_key.items() if len(listed) == 1}


def build_key(uri: str) -> str:
    """Return the path without its query in lower case: some services write one resource in several cases."""
    return plain(uri).casefold()


def path(uri: str) -> str:
    """Return the URI in its normal form (RFC 3986, section 6.2.2) without a trailing slash, by which resources are compared.

    A manager behind a proxy may name itself in some links and not in others, so an authority without a password does not count.
    """
    own = _BARE.sub("/redfish/", _AUTHORITY.sub("", uri, count=1), count=1)
    if "@" in own:
        # Such a link is refused, and told without its password.
        own = _USER_INFO.sub("//redacted@", own, count=1)
    if _ODD_PATH.search(own) and _PREFIX.match(own):
        shown, *query = _QUERY.split(own, maxsplit=1)
        shown = _ENCODED.sub(_decode, urllib.parse.quote(shown, safe="%/:@!$&'()*+,;=[]|"))
        own = _PREFIX.sub("/redfish/", posixpath.normpath(shown)) + "".join(query)
    return own.rstrip("/") if len(own) > 1 else own


def _decode(match: re.Match[str]) -> str:
    """Return the character that needs no percent-encoding, or else its encoding."""
    character = chr(int(match[1], 16))
    return character if _UNRESERVED.fullmatch(character) else match[0].upper()
