"""The permissions of the daemons' service accounts, by access reviews and by dry runs of the daemons' writes.

Nothing is stored. An account may ask about its own permissions even if it may not ask about others.

Roles decide on the kinds that an account may write; admission policies and webhooks decide on the content. Only a write
shows whether it passes all of them. The user of the doctor must be allowed to impersonate the accounts.

Source: Kubernetes "User impersonation", "Dry-run".
"""

import asyncio
import datetime
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from drawbar.driver.api import attachments, bindings, core, drivers, fabrics, meta, nodepools
from drawbar.driver.cli.doctor import observed, reading
from drawbar.driver.cli.doctor.findings import Unread
from drawbar.driver.cli.doctor.permissions import Answer, Daemon, Permission, Trial
from drawbar.driver.controller import names
from drawbar.driver.kube import client, errors, kinds, reviews


async def ask(
    reader: reading.Reader, where: observed.Where, permissions: Sequence[Permission]
) -> tuple[observed.Reading[Answer], ...]:
    """Return the answer to each permission, or the reason why there is none; a daemon's equal reasons are given once."""
    users = {
        Daemon.CONTROLLER: where.user(where.controller),
        Daemon.NODE: where.user(where.node),
    }
    general = await _may_ask(reader)
    me = None if general is True else await _name(reader)
    asked: list[asyncio.Task[observed.Reading[Answer]]] = []
    refused: dict[Daemon, Unread] = {}
    async with asyncio.TaskGroup() as tasks:
        for permission in permissions:
            user = users[permission.daemon]
            if general is not True and user != me:
                refused[permission.daemon] = _refusal(permission.daemon, general)
                continue
            work = _answer(reader, where.namespace, user if general is True else "", permission)
            asked.append(tasks.create_task(work, name="access review"))
    return (*refused.values(), *(task.result() for task in asked))


def _refusal(daemon: Daemon, general: observed.Reading[bool]) -> Unread:
    what = f"{daemon}'s permissions"
    if isinstance(general, Unread):
        return Unread(what=what, why=general.why)
    return Unread(
        what=what,
        why="this user may not ask for the rights of others",
        permission=f"create {kinds.ACCESS_REVIEW.plural}",
    )


async def _may_ask(reader: reading.Reader) -> observed.Reading[bool]:
    return await may(
        reader, {"group": kinds.ACCESS_REVIEW.group, "resource": kinds.ACCESS_REVIEW.plural, "verb": "create"}
    )


async def may(reader: reading.Reader, attributes: dict[str, str]) -> observed.Reading[bool]:
    """Return whether the present user may do something, given as the resource attributes of an access review."""
    work = functools.partial(reviews.may, reader.api, attributes)
    return await reader.attempt("this user's rights", f"create {kinds.SELF_ACCESS_REVIEW.plural}", work)


async def _name(reader: reading.Reader) -> str:
    work = functools.partial(reviews.find_username, reader.api)
    name = await reader.attempt("who this user is", f"create {kinds.SELF_REVIEW.plural}", work)
    return "" if isinstance(name, Unread) else name


async def _answer(
    reader: reading.Reader, namespace: str, user: str, permission: Permission
) -> observed.Reading[Answer]:
    """Return the answer about a user, or about the present user if the name is empty."""
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
    kind = kinds.ACCESS_REVIEW if user else kinds.SELF_ACCESS_REVIEW
    what = f"{permission.daemon}'s permissions"
    work = functools.partial(reviews.ask, reader.api, kind, spec)
    verdict = await reader.attempt(what, f"create {kind.plural}", work)
    return verdict if isinstance(verdict, Unread) else Answer(permission=permission, allowed=verdict.allowed)


# The trials have a field manager of their own, so that they do not give up the daemons' fields.
MANAGER = "drawbar-doctor"
# Drawbar makes no object of this name.
PROBE = "drawbar-doctor"
NODE_NAME = "authentication.kubernetes.io/node-name"


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One request that a daemon makes in its daily work.

    Attributes:
        what: the name for the finding.
        name: the name of a patched object; empty for a created one.
        node: the node that the node daemon's token is bound to.
    """

    daemon: Daemon
    what: str
    kind: kinds.Kind
    body: Any
    name: str = ""
    namespace: str | None = None
    subresource: str | None = None
    content: client.Patch = client.Patch.APPLY
    node: str = ""


def plan_writes(
    where: observed.Where,
    ours: Sequence[fabrics.Fabric],
    nodes: Sequence[core.Node],
    attached: Sequence[attachments.DeviceAttachment],
    *,
    modern: bool,
    now: datetime.datetime,
) -> tuple[Write, ...]:
    """Return the writes to try: one of each kind with an object to write.

    Args:
        where: the installation of Drawbar.
        ours: the driver's Fabrics.
        nodes: the cluster's nodes.
        attached: the driver's DeviceAttachments.
        modern: whether `resource.k8s.io/v1` is served.
        now: the time for changed conditions.
    """
    fabric = ours[0].metadata.name if ours else PROBE
    held = [attachment for attachment in attached if not attachment.deleting]
    writes = [*_statuses(ours, held, now)]
    if nodes:
        writes += _plan_label_write(where, fabric, nodes[0].metadata.name)
    claimed = [
        attachment
        for attachment in held
        if attachment.spec.claim is not None and attachment.holds(attachments.ATTACHED)
    ]
    if modern:
        writes += _slices(where, nodes)
        writes += _claims(where, claimed[:1], now)
    return tuple(writes)


def _plan_label_write(where: observed.Where, fabric: str, node: str) -> Iterator[Write]:
    label = {names.node_label(fabric): drivers.label_value(where.driver)}
    yield Write(
        daemon=Daemon.CONTROLLER,
        what=f"a label of node {node}",
        kind=kinds.NODE,
        name=node,
        body={"metadata": {"labels": label}},
        content=client.Patch.MERGE,
    )
    spec = {
        "fabric": fabric,
        "deviceID": PROBE,
        "driver": where.driver,
        "pool": names.pool(fabric, PROBE),
        "device": PROBE,
        "nodeName": node,
        "hostID": PROBE,
        "identity": {"deviceClass": "other"},
    }
    metadata = {
        "name": attachments.name(fabric, PROBE),
        "labels": {attachments.NODE_LABEL: attachments.node_label(node)},
        "finalizers": [attachments.FINALIZER],
    }
    yield Write(
        daemon=Daemon.CONTROLLER,
        what="a DeviceAttachment",
        kind=kinds.ATTACHMENT,
        body=_object(kinds.ATTACHMENT, metadata, spec=spec),
    )


def _slices(where: observed.Where, nodes: Sequence[core.Node]) -> Iterator[Write]:
    fabric_pool = names.pool(PROBE, "")
    selector = {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": names.node_label(PROBE), "operator": "In", "values": ["true"]}]}
        ]
    }
    yield Write(
        daemon=Daemon.CONTROLLER,
        what="a ResourceSlice",
        kind=kinds.SLICE,
        body=_slice(where, fabric_pool, nodeSelector=selector),
    )
    for node in nodes[:1]:
        name = node.metadata.name
        yield Write(
            daemon=Daemon.NODE,
            what=f"a ResourceSlice of node {name}",
            kind=kinds.SLICE,
            body=_slice(where, nodepools.pool(name, 0), nodeName=name),
            node=name,
        )


def _statuses(
    ours: Sequence[fabrics.Fabric],
    held: Sequence[attachments.DeviceAttachment],
    now: datetime.datetime,
) -> Iterator[Write]:
    for fabric in ours[:1]:
        name = fabric.metadata.name
        status = {"devices": fabric.status.devices}
        yield _status(Daemon.CONTROLLER, f"Fabric {name}", kinds.FABRIC, {"name": name}, status)
    for attachment in held[:1]:
        name, node = attachment.metadata.name, attachment.spec.node_name
        for daemon, condition in (
            (Daemon.CONTROLLER, attachments.ATTACHED),
            (Daemon.NODE, attachments.VISIBLE),
        ):
            current = meta.find(attachment.status.conditions, condition)
            reported = {"conditions": [_condition(condition, now, current)]}
            what = f"DeviceAttachment {name}"
            yield _status(daemon, what, kinds.ATTACHMENT, {"name": name}, reported, node=node)


def _claims(
    where: observed.Where, claimed: Sequence[attachments.DeviceAttachment], now: datetime.datetime
) -> Iterator[Write]:
    for attachment in claimed:
        claim, spec = attachment.spec.claim, attachment.spec
        if claim is None:
            continue
        for daemon, condition in ((Daemon.CONTROLLER, bindings.ATTACHED), (Daemon.NODE, bindings.VISIBLE)):
            entry = {
                "driver": spec.driver,
                "pool": spec.pool,
                "device": spec.device,
                "conditions": [_condition(bindings.condition_type(where.driver, condition), now, None)],
            }
            metadata = {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid}
            what = f"claim {claim.namespace}/{claim.name}"
            yield _status(daemon, what, kinds.CLAIM, metadata, {"devices": [entry]}, node=spec.node_name)


def _status(
    daemon: Daemon,
    what: str,
    kind: kinds.Kind,
    metadata: dict[str, str],
    status: dict[str, Any],
    *,
    node: str = "",
) -> Write:
    return Write(
        daemon=daemon,
        what=f"the status of {what}",
        kind=kind,
        name=metadata["name"],
        namespace=metadata.get("namespace"),
        subresource="status",
        body=_object(kind, metadata, status=status),
        node=node if daemon is Daemon.NODE else "",
    )


def _slice(where: observed.Where, pool: str, **reach: object) -> dict[str, Any]:
    spec = {
        "driver": where.driver,
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": PROBE, "attributes": {"class": {"string": "other"}}}],
    }
    return _object(
        kinds.SLICE, {"name": names.resource_slice(where.driver, f"{pool}/{PROBE}")}, spec=spec | reach
    )


def _condition(kind: str, now: datetime.datetime, current: meta.Condition | None) -> dict[str, str]:
    return {
        "type": kind,
        "status": current.status if current is not None else "True",
        "reason": "DryRun",
        "message": "",
        "lastTransitionTime": meta.timestamp(now),
    }


def _object(kind: kinds.Kind, metadata: dict[str, Any], **content: Any) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata} | content


async def try_writes(
    reader: reading.Reader, where: observed.Where, writes: Sequence[Write]
) -> tuple[observed.Reading[Trial], ...]:
    """Return the outcome of each write; one untried outcome for a daemon that this user may not impersonate."""
    accounts = {Daemon.CONTROLLER: where.controller, Daemon.NODE: where.node}
    trials: list[observed.Reading[Trial]] = []
    for daemon, account in accounts.items():
        own = [write for write in writes if write.daemon is daemon]
        if not own:
            continue
        allowed = await _may_impersonate(reader, where, account, bound=daemon is Daemon.NODE)
        if allowed is not True:
            what = f"{daemon}'s writes"
            trials.append(
                allowed if isinstance(allowed, Unread) else Trial(daemon=daemon, what=what, tried=False)
            )
            continue
        async with asyncio.TaskGroup() as tasks:
            begun = [
                tasks.create_task(_try(reader, where.user(account), write), name="trial") for write in own
            ]
        trials += [task.result() for task in begun]
    return tuple(trials)


async def _may_impersonate(
    reader: reading.Reader, where: observed.Where, account: str, *, bound: bool
) -> observed.Reading[bool]:
    wanted = [{"resource": "serviceaccounts", "namespace": where.namespace, "name": account}]
    if bound:
        wanted.append({"group": "authentication.k8s.io", "resource": "userextras", "subresource": NODE_NAME})
    for attributes in wanted:
        allowed = await may(reader, {"verb": "impersonate"} | attributes)
        if allowed is not True:
            return allowed
    return True


async def _try(reader: reading.Reader, user: str, write: Write) -> observed.Reading[Trial]:
    api = reader.api.acting_as(user, {NODE_NAME: write.node} if write.node else {})
    trial = Trial(daemon=write.daemon, what=write.what)
    ask = functools.partial(_send, api, write, trial)
    return await reader.attempt(f"{write.daemon}'s writes", "", ask)


async def _send(api: client.Client, write: Write, trial: Trial) -> Trial:
    try:
        if write.name:
            await api.patch(
                write.kind,
                write.name,
                write.body,
                content=write.content,
                into=dict,
                namespace=write.namespace,
                subresource=write.subresource,
                manager=MANAGER,
                dry_run=True,
            )
        else:
            await api.create(write.kind, write.body, into=dict, namespace=write.namespace, dry_run=True)
    except (errors.Denied, errors.Invalid) as error:
        # The API server refuses a dry run if a webhook has side effects.
        return (
            msgspec.structs.replace(trial, tried=False)
            if "dry run" in str(error)
            else msgspec.structs.replace(trial, refused=str(error))
        )
    except (errors.Conflict, errors.NotFound):
        # The object was deleted or replaced since it was read. Whether the write would pass is not known.
        return msgspec.structs.replace(trial, tried=False)
    return trial
