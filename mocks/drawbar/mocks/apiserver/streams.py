"""Watches over HTTP: newline-delimited JSON events, bookmarks, and a clean end."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from drawbar.mocks.apiserver import errors, interference, listing, requests, tables, watch
from drawbar.mocks.apiserver.resources import ResourceType
from drawbar.mocks.apiserver.storage import Store

Json = dict[str, Any]
_FAREWELL_SECONDS = 2.0
NO_WATCH_LIST = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The view of a watcher: resource, version and form."""

    resource: ResourceType
    version: str
    namespace: str
    form: str
    query: Mapping[str, str]

    def encode_event(self, event: watch.Event) -> bytes:
        """Return the line of an event; watchers share the encoded plain forms."""
        if self.form:
            return _line(event.kind, self.render_item(event.item, _stamp()))
        label = (event.kind, self.resource.api_version(self.version))
        line = event.change.wire.get(label)
        if line is None:
            line = event.change.wire[label] = _line(
                event.kind, self.resource.convert_to_version(event.item, self.version)
            )
        return line

    def render_item(self, item: Json, now: str) -> Json:
        """Return an object in the requested form."""
        if self.form == "Table":
            include = self.query.get("includeObject", "Metadata")
            metadata = {"resourceVersion": item["metadata"]["resourceVersion"]}
            return tables.table(
                self.resource, self.version, [item], now=now, include=include, metadata=metadata
            )
        if self.form:
            return make_partial_metadata(item)
        return self.resource.convert_to_version(item, self.version)


def make_partial_metadata(item: Json) -> Json:
    """Return only the metadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}


async def serve(
    request: web.Request, store: Store, view: View, *, now: str, bookmark_seconds: float, lists: bool
) -> web.StreamResponse:
    """Answer a watch request until it times out, the client leaves or the server stops.

    Args:
        request: the watch request.
        store: the store of the objects.
        view: the selection and form of the objects.
        now: the present time in answers.
        bookmark_seconds: the pause between two bookmarks, in seconds.
        lists: true if a watch may begin with the list (feature gate WatchList).

    Raises:
        ApiError: 400 or 422, before anything was sent.
    """
    query = view.query
    chosen = listing.selector(view.resource, query)
    bookmarks = requests.is_true(query.get("allowWatchBookmarks"))
    initial = requests.is_true(query.get("sendInitialEvents"))
    if initial and not lists:
        cause = errors.forbidden_value("sendInitialEvents", NO_WATCH_LIST)
        raise errors.invalid_error("ListOptions", "meta.k8s.io", "", [cause])
    if initial and (query.get("resourceVersionMatch") != "NotOlderThan" or not bookmarks):
        cause = errors.forbidden_value(
            "resourceVersionMatch", "sendInitialEvents needs NotOlderThan and allowWatchBookmarks"
        )
        raise errors.invalid_error("ListOptions", "meta.k8s.io", "", [cause])
    seconds = requests.whole_number(query.get("timeoutSeconds"), "timeoutSeconds")
    asked = requests.whole_number(query.get("resourceVersion"), "resourceVersion") or 0
    collection = store.collection(view.resource.where)
    watcher = watch.Watcher(chosen, view.namespace)
    start = store.version
    first = list(collection.select(view.namespace, chosen)) if initial or asked == 0 else []
    lines = [(item, _line("ADDED", view.render_item(item, now))) for item in first]
    farewell = _bookmark(view, start, {INITIAL_EVENTS_END: "true"}) if initial else b""
    response = web.StreamResponse(
        headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
    )
    try:
        collection.hub.open(watcher, start if initial or asked == 0 else asked)
    except watch.CompactedError as error:
        expired = errors.expired_error(f"too old resource version: {asked} ({error.oldest})")
        lines, farewell, watcher.closed = [], _line("ERROR", expired.body()), True
    stream = interference.CURRENT.get()
    try:
        await response.prepare(request)
        with stream.opening(watcher.close):
            await stream.deliver(response, lines)
            await response.write(farewell)
            deadline = asyncio.get_running_loop().time() + (seconds or random.uniform(1800, 3600))  # noqa: S311 - spreads reconnects
            await _pump(
                response,
                stream,
                watcher,
                view,
                store,
                deadline=deadline,
                bookmark_seconds=bookmark_seconds if bookmarks else None,
            )
    except ConnectionError:
        return response  # the client left
    finally:
        collection.hub.close(watcher)
    return response


async def _pump(
    response: web.StreamResponse,
    stream: interference.Stream,
    watcher: watch.Watcher,
    view: View,
    store: Store,
    *,
    deadline: float,
    bookmark_seconds: float | None,
) -> None:
    loop = asyncio.get_running_loop()
    period = math.inf if bookmark_seconds is None else bookmark_seconds
    bookmark = _next_bookmark(loop.time(), period, deadline)
    timer = loop.call_at(min(deadline, bookmark), watcher.nudge)
    try:
        while not watcher.closed and not watcher.overflowed:
            events = await watcher.batch()
            if events:
                await stream.deliver(response, [(event.item, view.encode_event(event)) for event in events])
            now = loop.time()
            if now >= deadline:
                break
            if now >= bookmark:
                await stream.clearance()
                if not watcher.behind:  # a bookmark guarantees that everything before it was sent
                    await response.write(_bookmark(view, store.version, {}))
                bookmark = _next_bookmark(now, period, deadline)
            if now >= timer.when():
                timer = loop.call_at(min(deadline, bookmark), watcher.nudge)
    finally:
        timer.cancel()
    await stream.finish(response)
    await response.write_eof()


def _next_bookmark(now: float, period: float, deadline: float) -> float:
    """Return the time of the next bookmark: after a period, and once shortly before the watch ends."""
    last = deadline - _FAREWELL_SECONDS
    return min(now + period, last) if now < last and period < math.inf else now + period


def _stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _line(kind: str, item: Json) -> bytes:
    return requests.encode({"type": kind, "object": item}) + b"\n"


def _bookmark(view: View, version: int, annotations: Json) -> bytes:
    metadata: Json = {"resourceVersion": str(version), "creationTimestamp": None}
    if annotations:
        metadata["annotations"] = annotations
    kind, api = view.resource.kind, view.resource.api_version(view.version)
    if view.form:
        kind, api = ("Table" if view.form == "Table" else "PartialObjectMetadata"), "meta.k8s.io/v1"
    return _line("BOOKMARK", {"kind": kind, "apiVersion": api, "metadata": metadata})
