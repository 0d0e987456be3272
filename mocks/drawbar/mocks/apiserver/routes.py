"""HTTP: every request is authenticated, authorized, carried out and answered, errors as ``Status`` objects."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from drawbar.mocks.apiserver import (
    binding,
    bodies,
    discovery,
    errors,
    lifecycle,
    listing,
    patches,
    rbac,
    requests,
    reviews,
    streams,
    tables,
    visits,
)
from drawbar.mocks.apiserver.registry import Registry, Written
from drawbar.mocks.apiserver.requests import JSON_TYPE, YAML_TYPE, Target
from drawbar.mocks.apiserver.resources import DEFINITIONS
from drawbar.mocks.apiserver.strategies import Call
from drawbar.mocks.apiserver.visits import Visit
from drawbar.mocks.apiserver.writes import Write, WriteLog

Json = dict[str, Any]
log = logging.getLogger(__name__)

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_HEALTH = ("/healthz", "/livez", "/readyz")
_PATCH_ATTEMPT_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)


class Front:
    """The handler of all requests."""

    def __init__(
        self,
        registry: Registry,
        tokens: Mapping[str, rbac.User],
        writes: WriteLog,
        *,
        bookmark_seconds: float,
    ) -> None:
        """Serve what ``registry`` holds to the owners of ``tokens``."""
        self.registry = registry
        self.tokens = tokens
        self.writes = writes
        self.bookmark_seconds = bookmark_seconds

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request; nothing but a ``Status`` leaves when it is refused."""
        try:
            return await self._answer(request)
        except errors.ApiError as error:
            return _json(error.body(), error.code)
        except web.HTTPRequestEntityTooLarge:
            return _json(errors.too_large(requests.BODY_LIMIT).body(), 413)
        except Exception:
            log.exception("a request failed", extra={"method": request.method, "path": request.path})
            return _json(errors.internal("the server failed on this request; its log says why").body(), 500)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        user = self._user(request)
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
        self._authorize(visit)
        visits.check_shape(visit)
        if verb in ("get", "list", "watch"):
            return await self._read(visit)
        try:
            response = await self._write(visit)
        except errors.ApiError as error:
            self._record(visit, error.code)
            raise
        self._record(visit, response.status)
        return response

    def _user(self, request: web.Request) -> rbac.User:
        header = request.headers.get("Authorization", "")
        if not header:
            return rbac.ANONYMOUS
        scheme, _, token = header.partition(" ")
        user = self.tokens.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise errors.unauthorized()
        return user

    def _authorize(self, visit: Visit, verb: str = "") -> None:
        target = visit.target
        name = target.name
        if not name and visit.verb in ("list", "watch", "deletecollection"):
            name = listing.selector(visit.resource, visit.query).exact_name() or ""
        wanted = rbac.Attributes(
            verb=verb or visit.verb,
            group=target.group,
            resource=target.plural,
            subresource=target.subresource,
            namespace=target.namespace,
            name=name,
        )
        if not self.registry.authorizer.allows(visit.user, wanted):
            text = rbac.refusal(visit.user, wanted)
            raise errors.forbidden(target.plural, target.group, name, text)

    def _plain(self, request: web.Request, user: rbac.User, path: str, target: Target | None) -> web.Response:
        wanted = rbac.Attributes(verb=request.method.lower(), path=path)
        if not self.registry.authorizer.allows(user, wanted):
            raise errors.forbidden("", "", "", rbac.refusal(user, wanted))
        if request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed()
        if path in _HEALTH:
            return web.Response(text="ok")
        document = self._document(path, target)
        if document is None:
            raise errors.no_such_path()
        return _json(document)

    def _document(self, path: str, target: Target | None) -> Json | None:
        catalogue, profile = self.registry.catalogue, self.registry.profile
        if target is not None:
            return discovery.resource_list(catalogue, target.group, target.version)
        fixed: Json = {
            "/version": discovery.version_info(profile),
            "/api": discovery.core_versions(),
            "/apis": discovery.group_list(catalogue),
            "/openapi/v3": discovery.openapi_index(catalogue),
            "/": {"paths": ["/api", "/apis", *_HEALTH, "/openapi/v3", "/version"]},
        }
        match path.strip("/").split("/"):
            case ["apis", name]:
                return discovery.group(catalogue, name)
            case ["openapi", "v3", "api", version]:
                return discovery.openapi(catalogue, "", version, profile)
            case ["openapi", "v3", "apis", name, version]:
                return discovery.openapi(catalogue, name, version, profile)
            case _:
                found: Json | None = fixed.get(path)
                return found

    async def _review(self, request: web.Request, user: rbac.User, target: Target) -> web.Response:
        if request.method != "POST":
            raise errors.method_not_allowed()
        wanted = rbac.Attributes(verb="create", group=target.group, resource=target.plural)
        if not self.registry.authorizer.allows(user, wanted):
            raise errors.forbidden(target.plural, target.group, "", rbac.refusal(user, wanted))
        body = await bodies.an_object(request, (JSON_TYPE, YAML_TYPE))
        return _json(reviews.review(self.registry.authorizer, user, target.plural, body), 201)

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
            )
        if visit.verb == "get":
            return _json(view.shown(self.registry.find(resource, target.namespace, target.name), visit.now))
        page = listing.page(self.registry.store, resource, target.namespace, query)
        if form == "Table":
            include = query.get("includeObject", "Metadata")
            body = tables.table(
                resource, target.version, page.items, now=visit.now, include=include, metadata=page.metadata
            )
            return _json(body)
        items = [
            streams.partial(item) if form else resource.served(item, target.version) for item in page.items
        ]
        kind, api = resource.list_kind, resource.api_version(target.version)
        if form:
            kind, api = "PartialObjectMetadataList", "meta.k8s.io/v1"
        return _json({"kind": kind, "apiVersion": api, "metadata": page.metadata, "items": items})

    async def _write(self, visit: Visit) -> web.Response:
        match visit.verb:
            case "create":
                item = await bodies.an_item(visit)
                if visit.target.subresource == "binding":
                    return _json(binding.bind(self.registry, visit, item), 201)
                return self._written(visit, self.registry.create(self._call(visit), item))
            case "update":
                item = await bodies.an_item(visit)
                return self._written(visit, self.registry.update(self._call(visit), item))
            case "patch":
                return await self._patch(visit)
            case "delete":
                return await self._delete(visit)
            case _:
                return await self._delete_all(visit)

    async def _patch(self, visit: Visit) -> web.Response:
        registry, resource, request = self.registry, visit.resource, visit.request
        accepted = tuple(t for t in _PATCH_ATTEMPT_TYPES if t != STRATEGIC_PATCH or not resource.custom)
        kind = request.content_type
        if kind == APPLY_PATCH:
            return await self._apply(visit, accepted)
        patch = requests.decode(await request.read(), kind, accepted)
        schema = resource.merge_schema(visit.target.version)

        def change(shown: Json) -> Json:
            try:
                if kind == JSON_PATCH:
                    result = patches.json_patch(shown, patch)
                elif kind == MERGE_PATCH:
                    result = patches.merge_patch(shown, patch)
                else:
                    result = patches.strategic_merge(shown, patch, schema)
            except patches.PatchError as error:
                raise errors.invalid(
                    resource.kind,
                    resource.group,
                    visit.target.name,
                    [errors.invalid_value("patch", "", str(error))],
                ) from error
            return dict(result) if isinstance(result, dict) else {}

        return self._written(visit, registry.patch(self._call(visit), change))

    async def _apply(self, visit: Visit, accepted: tuple[str, ...]) -> web.Response:
        config = requests.decode(await visit.request.read(), APPLY_PATCH, accepted)
        if not isinstance(config, dict):
            raise errors.bad_request("an applied configuration is one object")
        for key in ("apiVersion", "kind"):
            if not config.get(key):
                raise errors.bad_request(
                    f"error decoding patch: {key} must be set in an applied configuration"
                )
        visits.check_kind(visit, config, kind=visit.resource.kind)
        if not visit.query.get("fieldManager"):
            cause = errors.required("fieldManager", "is required for apply patch")
            raise errors.invalid("PatchOptions", "meta.k8s.io", "", [cause])
        stored = self.registry.store.collection(visit.resource.where).items
        if (visit.target.namespace, visit.target.name) not in stored and not visit.target.subresource:
            self._authorize(visit, verb="create")
        force = requests.is_true(visit.query.get("force"))
        config = visit.resource.stored(config, visit.target.version)
        return self._written(visit, self.registry.apply(self._call(visit), config, force=force))

    async def _delete(self, visit: Visit) -> web.Response:
        options = await bodies.delete_options(visit)
        call, registry = self._call(visit), self.registry
        preconditions = options.get("preconditions") or {}
        if visit.resource is DEFINITIONS and not call.dry_run:
            item = registry.find(DEFINITIONS, "", call.name)
            registry.check_preconditions(call, item, preconditions)
            registry.write(DEFINITIONS, lifecycle.protect(item))
            preconditions = {}
        grace = options.get("gracePeriodSeconds")
        grace = (
            grace
            if isinstance(grace, int)
            else requests.whole_number(visit.query.get("gracePeriodSeconds"), "gracePeriodSeconds")
        )
        outcome = registry.delete(call, grace=grace, preconditions=preconditions)
        if visit.resource is DEFINITIONS and not call.dry_run:
            lifecycle.empty_definition(registry, call, outcome.item)
        elif visit.resource.where == ("", "namespaces"):
            lifecycle.empty_namespace(registry, call)
        if outcome.removed and not visit.resource.returns_object:
            self._after_removal(visit)
            return _json(visits.success(visit, outcome))
        return self._written(visit, outcome)

    async def _delete_all(self, visit: Visit) -> web.Response:
        await bodies.delete_options(visit)
        page = listing.page(self.registry.store, visit.resource, visit.target.namespace, visit.query)
        call = self._call(visit)
        for item in page.items:
            metadata = item["metadata"]
            inner = lifecycle.inner_call(
                call, visit.resource, metadata.get("namespace", ""), metadata["name"]
            )
            self.registry.remove_or_mark(inner, item)
        items = [visit.resource.served(item, visit.target.version) for item in page.items]
        kind, api = visit.resource.list_kind, visit.resource.api_version(visit.target.version)
        return _json({"kind": kind, "apiVersion": api, "metadata": page.metadata, "items": items})

    def _call(self, visit: Visit) -> Call:
        target = visit.target
        agent = visit.request.headers.get("User-Agent", "").split("/")[0]
        if not visit.resource.namespaced and target.namespace:
            raise errors.no_such_path()
        return Call(
            resource=visit.resource,
            version=target.version,
            user=visit.user,
            verb=visit.verb,
            now=visit.now,
            namespace=target.namespace,
            name=target.name,
            subresource=target.subresource,
            manager=(visit.query.get("fieldManager") or agent or "unknown")[:128],
            dry_run=visits.is_dry_run(visit),
            strict=visit.query.get("fieldValidation") == "Strict",
        )

    def _written(self, visit: Visit, outcome: Written) -> web.Response:
        item = outcome.item
        if visit.resource is DEFINITIONS and not outcome.removed and not visits.is_dry_run(visit):
            item = lifecycle.establish(self.registry, item["metadata"]["name"], visit.now)
        if outcome.removed:
            self._after_removal(visit)
        form = requests.answer(visit.request.headers.get("Accept", "")).form
        view = streams.View(
            resource=visit.resource,
            version=visit.target.version,
            namespace=visit.target.namespace,
            form=form,
            query=visit.query,
        )
        return _json(view.shown(item, visit.now), 201 if outcome.created else 200)

    def _after_removal(self, visit: Visit) -> None:
        if visit.target.namespace:
            lifecycle.finish_namespace(self.registry, visit.target.namespace)
        if visit.resource.custom:
            lifecycle.finish_definition(self.registry, visit.resource)

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


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type=JSON_TYPE)
