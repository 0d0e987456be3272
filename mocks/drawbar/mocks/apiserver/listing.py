"""Lists: selection, pages, and the versions of lists."""

from __future__ import annotations

import base64
import binascii
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from drawbar.mocks.apiserver import errors, requests, selectors, watch
from drawbar.mocks.apiserver.resources import ResourceType
from drawbar.mocks.apiserver.storage import Store, key_of

Json = dict[str, Any]
INCONSISTENT = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
_LATEST = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A part of a list, and its metadata."""

    items: list[Json]
    metadata: Json


def selector(resource: ResourceType, query: Mapping[str, str]) -> selectors.Selector:
    """Return the selector of a query.

    Raises:
        ApiError: 400, it is malformed.
    """
    return selectors.Selector(
        labels=selectors.parse_labels(query.get("labelSelector", "")),
        fields=selectors.parse_fields(query.get("fieldSelector", ""), resource.field_paths()),
    )


def page(store: Store, resource: ResourceType, namespace: str, query: Mapping[str, str]) -> Page:
    """Return one page of a list, consistent with the first one.

    Raises:
        ApiError: 400, 410 (continue token or version too old; for a token with one to continue at the latest version,
            as in etcd3/errors.go) or 504 (version from the future).
    """
    chosen = selector(resource, query)
    collection = store.collection(resource.where)
    limit = requests.whole_number(query.get("limit"), "limit") or 0
    token = query.get("continue")
    version, after = _position(token) if token else (_LATEST, None)
    version = store.version if version == _LATEST else version
    asked = requests.whole_number(query.get("resourceVersion"), "resourceVersion") or 0
    if asked > store.version:
        raise errors.version_too_large(asked, store.version)
    if query.get("resourceVersionMatch") == "Exact" and not token:
        version = asked
    try:
        if version == store.version:
            matching = collection.select(namespace, chosen, after=after)
        else:
            matching = collection.select_at(version, namespace, chosen, after=after)
    except watch.CompactedError as error:
        if after is None:
            raise errors.expired_error(errors.TOO_OLD.format("list")) from error
        raise errors.expired_error(INCONSISTENT, token=_token(_LATEST, after)) from error
    metadata: Json = {"resourceVersion": str(version)}
    items = list(itertools.islice(matching, limit or None))
    if limit and next(matching, None) is not None:
        metadata["continue"] = _token(version, key_of(items[-1]))
        if not chosen.labels and not chosen.fields:
            metadata["remainingItemCount"] = 1 + sum(1 for _ in matching)
    return Page(items=items, metadata=metadata)


def _token(version: int, key: tuple[str, str]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([version, *key])).decode()


def _position(token: str) -> tuple[int, tuple[str, str]]:
    try:
        version, namespace, name = msgspec.json.decode(
            base64.urlsafe_b64decode(token), type=tuple[int, str, str]
        )
    except (binascii.Error, ValueError) as error:
        raise errors.bad_request("continue key is not valid: it was not made by this server") from error
    return version, (namespace, name)
