"""The HTTP layer: authenticate, authorize, carry out and answer every request, with errors as ``Status`` objects."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from drawbar.mocks.apiserver import (
    access,
    answers,
    authentication,
    bodies,
    changes,
    collector,
    discovery,
    errors,
    listing,
    openapi,
    rbac,
    requests,
    reviews,
    streams,
    tables,
    visits,
)
from drawbar.mocks.apiserver.registry import Registry
from drawbar.mocks.apiserver.requests import JSON_TYPE, YAML_TYPE, Target
from drawbar.mocks.apiserver.visits import Visit
from drawbar.mocks.apiserver.writes import Write, WriteLog

Json = dict[str, Any]
log = logging.getLogger(__name__)

WATCH_LIST_SINCE = 32
"""The first minor release in which a watch may begin with the list by default."""
_HEALTH = ("/healthz", "/livez", "/readyz")


class Front:
    """The handler of all requests."""

    def __init__(
        self,
        registry: Registry,
        tokens: Mapping[str, rbac.User],
        writes: WriteLog,
        *,
        mint: reviews.Mint,
        bookmark_seconds: float,
    ) -> None:
        """Serve the objects of ``registry`` to the owners of ``tokens``; ``mint`` makes a token for a user."""
        self.registry = registry
        self.tokens = tokens
        self.writes = writes
        self.desk = reviews.Desk(authorizer=registry.authorizer, tokens=tokens, mint=mint)
        self.bookmark_seconds = bookmark_seconds

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request; a refusal is always a ``Status``."""
        try:
            return await self._answer(request)
        except errors.ApiError as error:
            return answers.as_json(error.body(), error.code)
        except web.HTTPRequestEntityTooLarge:
            return answers.as_json(errors.too_large(requests.BODY_LIMIT).body(), 413)
        except Exception:
            log.exception("a request failed", extra={"method": request.method, "path": request.path})
            return answers.as_json(
                errors.internal_error("the server failed on this request; its log says why").body(), 500
            )

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        user = authentication.caller(request, self.tokens, self.registry.authorizer)
        path = request.path.rstrip("/") or "/"
        target = requests.target(path)
        if target is None or not target.plural:
            return self._plain(request, user, path, target)
        if target.plural in {plural for plural, _ in discovery.REVIEWS.get(target.group, ())}:
            return await self._review(request, user, target)
        resource = self.registry.catalogue.find(target.group, target.version, target.plural)
        if resource is None:
            raise errors.no_such_path()
        verb = visits.verb_of(request, target)
        visit = Visit(
            request=request,
            user=user,
            resource=resource,
            target=target,
            verb=verb,
            query=request.query,
            now=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        )
        access.check(self.registry.authorizer, visit)
        visits.check_shape(visit)
        if verb in ("get", "list", "watch"):
            return await self._read(visit)
        return await self._write(visit)

    async def _write(self, visit: Visit) -> web.Response:
        try:
            visit = await bodies.with_delete_options(visit)
            response = await changes.carry_out(self.registry, self.desk, visit)
        except errors.ApiError as error:
            response = answers.as_json(error.body(), error.code)
        collector.settle(self.registry, visit.now)
        self._record(visit, response.status)
        answers.warn(response, visit.warnings)
        return response

    def _plain(self, request: web.Request, user: rbac.User, path: str, target: Target | None) -> web.Response:
        wanted = rbac.Attributes(verb=request.method.lower(), path=path)
        if not self.registry.authorizer.allows(user, wanted):
            raise errors.forbidden_error("", "", "", rbac.refusal(user, wanted))
        if request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed()
        if path in _HEALTH:
            return web.Response(text="ok")
        document = self._document(path, target)
        if document is None:
            raise errors.no_such_path()
        return answers.as_json(document)

    def _document(self, path: str, target: Target | None) -> Json | None:
        catalogue, profile = self.registry.catalogue, self.registry.profile
        if target is not None:
            return discovery.resource_list(catalogue, target.group, target.version)
        fixed: Json = {
            "/version": discovery.version_info(profile),
            "/api": discovery.core_versions(),
            "/apis": discovery.group_list(catalogue),
            "/openapi/v3": openapi.index(discovery.groups(catalogue)),
            "/": {"paths": ["/api", "/apis", *_HEALTH, "/openapi/v3", "/version"]},
        }
        match path.strip("/").split("/"):
            case ["apis", name]:
                return discovery.group(catalogue, name)
            case ["openapi", "v3", "api", version]:
                return self._openapi("", version)
            case ["openapi", "v3", "apis", name, version]:
                return self._openapi(name, version)
            case _:
                document: Json | None = fixed.get(path)
                return document

    def _openapi(self, group: str, version: str) -> Json | None:
        catalogue = self.registry.catalogue
        if version not in discovery.groups(catalogue).get(group, ()):
            return None
        return openapi.document(catalogue, group, version, self.registry.profile)

    async def _review(self, request: web.Request, user: rbac.User, target: Target) -> web.Response:
        if request.method != "POST":
            raise errors.method_not_allowed()
        wanted = rbac.Attributes(
            verb="create", group=target.group, resource=target.plural, namespace=target.namespace
        )
        if not self.registry.authorizer.allows(user, wanted):
            raise errors.forbidden_error(target.plural, target.group, "", rbac.refusal(user, wanted))
        body = await bodies.read_object(request, (JSON_TYPE, YAML_TYPE))
        return answers.as_json(self.desk.review(user, target.plural, body), 201)

    async def _read(self, visit: Visit) -> web.StreamResponse:
        resource, target, query = visit.resource, visit.target, visit.query
        form = requests.answer(visit.request.headers.get("Accept", "")).form
        view = streams.View(
            resource=resource, version=target.version, namespace=target.namespace, form=form, query=query
        )
        if visit.verb == "watch":
            if target.name:
                view = streams.View(
                    resource=resource,
                    version=target.version,
                    namespace=target.namespace,
                    form=form,
                    query={**query, "fieldSelector": f"metadata.name={target.name}"},
                )
            return await streams.serve(
                visit.request,
                self.registry.store,
                view,
                now=visit.now,
                bookmark_seconds=self.bookmark_seconds,
                lists=self.registry.profile.minor >= WATCH_LIST_SINCE,
            )
        if visit.verb == "get":
            return answers.as_json(
                view.render_item(self.registry.find(resource, target.namespace, target.name), visit.now)
            )
        page = listing.page(self.registry.store, resource, target.namespace, query)
        if form == "Table":
            include = query.get("includeObject", "Metadata")
            body = tables.table(
                resource, target.version, page.items, now=visit.now, include=include, metadata=page.metadata
            )
            return answers.as_json(body)
        items = [
            streams.make_partial_metadata(item) if form else answers.make_list_item(visit, item)
            for item in page.items
        ]
        kind, api = resource.list_kind, resource.api_version(target.version)
        if form:
            kind, api = "PartialObjectMetadataList", "meta.k8s.io/v1"
        return answers.as_json({"kind": kind, "apiVersion": api, "metadata": page.metadata, "items": items})

    def _record(self, visit: Visit, code: int) -> None:
        self.writes.record(
            Write(
                method=visit.request.method,
                verb=visit.verb,
                resource=visit.target.plural,
                subresource=visit.target.subresource,
                namespace=visit.target.namespace,
                name=visit.target.name,
                user=visit.user.name,
                manager=visit.query.get("fieldManager", ""),
                dry_run=bool(visit.query.get("dryRun")),
                code=code,
            )
        )
