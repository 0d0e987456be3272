"""Asks the API server what the daemons' service accounts may do, by access reviews: objects that are never stored.

Whoever may not ask about others, as the daemons themselves, may still ask about themselves.
"""

import asyncio
import functools
from collections.abc import Sequence
from typing import Any

from drawbar.driver.cli.doctor import objects, observed, reading
from drawbar.driver.cli.doctor.findings import Unread
from drawbar.driver.cli.doctor.permissions import Answer, Daemon, Permission
from drawbar.driver.kube import kinds

_GROUP = "authorization.k8s.io"
_ABOUT_OTHERS = kinds.Kind(
    group=_GROUP,
    version="v1",
    kind="SubjectAccessReview",
    plural="subjectaccessreviews",
    namespaced=False,
)
_ABOUT_ME = kinds.Kind(
    group=_GROUP,
    version="v1",
    kind="SelfSubjectAccessReview",
    plural="selfsubjectaccessreviews",
    namespaced=False,
)
_WHO_AM_I = kinds.Kind(
    group="authentication.k8s.io",
    version="v1",
    kind="SelfSubjectReview",
    plural="selfsubjectreviews",
    namespaced=False,
)


async def ask(
    reader: reading.Reader, where: observed.Where, permissions: Sequence[Permission]
) -> tuple[observed.Reading[Answer], ...]:
    """An answer to each, or why there is none; one reason for all of a daemon's that have the same."""
    users = {
        Daemon.CONTROLLER: where.user(where.controller),
        Daemon.NODE: where.user(where.node),
    }
    general = await _may_ask(reader)
    me = None if general is True else await _name(reader)
    found: list[asyncio.Task[observed.Reading[Answer]]] = []
    refused: dict[Daemon, Unread] = {}
    async with asyncio.TaskGroup() as tasks:
        for permission in permissions:
            user = users[permission.daemon]
            if general is not True and user != me:
                refused[permission.daemon] = _refusal(permission.daemon, general)
                continue
            work = _answer(reader, where.namespace, user if general is True else "", permission)
            found.append(tasks.create_task(work, name="access review"))
    return (*refused.values(), *(task.result() for task in found))


def _refusal(daemon: Daemon, general: observed.Reading[bool]) -> Unread:
    what = f"{daemon}'s permissions"
    if isinstance(general, Unread):
        return Unread(what=what, why=general.why)
    return Unread(
        what=what,
        why="this user may not ask what others may do",
        permission=f"create {_ABOUT_OTHERS.plural}",
    )


async def _may_ask(reader: reading.Reader) -> observed.Reading[bool]:
    return await may(reader, {"group": _GROUP, "resource": _ABOUT_OTHERS.plural, "verb": "create"})


async def may(reader: reading.Reader, attributes: dict[str, str]) -> observed.Reading[bool]:
    """Whether the user who runs this may do something, given as the attributes of a resource in an access review."""
    work = functools.partial(_allowed, reader, _ABOUT_ME, {"resourceAttributes": attributes})
    return await reader.attempt("what this user may do", f"create {_ABOUT_ME.plural}", work)


async def _name(reader: reading.Reader) -> str:
    body = {"apiVersion": _WHO_AM_I.api_version, "kind": _WHO_AM_I.kind}
    work = functools.partial(reader.api.create, _WHO_AM_I, body, into=objects.SelfReview)
    found = await reader.attempt("who this user is", f"create {_WHO_AM_I.plural}", work)
    return "" if isinstance(found, Unread) else found.status.user_info.username


async def _answer(
    reader: reading.Reader, namespace: str, user: str, permission: Permission
) -> observed.Reading[Answer]:
    """About that user, or with an empty name about ourselves."""
    resource, _, subresource = permission.resource.partition("/")
    spec: dict[str, Any] = {
        "resourceAttributes": {
            "verb": permission.verb,
            "group": permission.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": permission.namespace,
            "name": permission.name,
        }
    }
    if user:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        spec |= {"user": user, "groups": groups}
    kind = _ABOUT_OTHERS if user else _ABOUT_ME
    what = f"{permission.daemon}'s permissions"
    allowed = await reader.attempt(
        what, f"create {kind.plural}", functools.partial(_allowed, reader, kind, spec)
    )
    return allowed if isinstance(allowed, Unread) else Answer(permission=permission, allowed=allowed)


async def _allowed(reader: reading.Reader, kind: kinds.Kind, spec: dict[str, Any]) -> bool:
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}
    return (await reader.api.create(kind, body, into=objects.Review)).status.allowed
