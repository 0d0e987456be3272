"""Attach and detach by a DeviceAttachment, which is the lock; the controller calls the fabric.

An attachment without a claim is held by hand. The controller keeps it until it is deleted, and gives the device to no
claim.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any

from drawbar.driver import errors
from drawbar.driver.api import attachments
from drawbar.driver.cli import consent, flags, objects, progress, tables
from drawbar.driver.cli.fabric import direct, observed, oddities, views
from drawbar.driver.controller import hosts as host_map
from drawbar.driver.controller import names
from drawbar.driver.controller.attachments import identities, statements
from drawbar.driver.controller.fabrics import numbers
from drawbar.driver.controller.offers import any_of_model, holdings
from drawbar.driver.kube import client, kinds
from drawbar.driver.kube import errors as kube_errors
from drawbar.fabric import contract

WATCH_AGAIN_SECONDS = 1.0
MANAGER = "drawbar-fabric"


async def attach(
    api: client.Client,
    source: observed.Source,
    adapter: contract.FabricAdapter,
    device_id: str,
    host_name: str,
    *,
    assumed: bool,
    dry_run: str = flags.NO_DRY_RUN,
) -> dict[str, Any]:
    """Create the DeviceAttachment of a free device, and return the outcome once the controller has attached the device.

    Args:
        api: the cluster's API server.
        source: the Fabric.
        adapter: the adapter, connected to the Fabric's manager.
        device_id: the fabric's id of the device.
        host_name: a host's id, or the name of its node.
        assumed: whether the operator's agreement is assumed.
        dry_run: one of `flags.DRY_RUNS`; except with `none`, nothing is attached, and the outcome is the one that it would have.

    Raises:
        DrawbarError: it cannot be attached, or the operator declines.
    """
    assert source.cluster is not None
    async with progress.show_activity("reading the fabric"):
        can = await adapter.capabilities()
        listed, hosts = await adapter.devices(), await adapter.hosts()
        device = listed.device(device_id)
        mapped = oddities.node_map(source, hosts)
    if not can.exact_device:
        raise errors.DrawbarError(
            "the fabric chooses the device itself, so none can be named; give --model and --host"
        )
    if device is None:
        raise objects.Missing(listed.explain_missing(device_id, "`drawbar fabric devices` lists the ids"))
    node, host_id = _where(source.cluster, mapped, host_name)
    _refuse_taken(source, device)
    question = f"Attach device {device_id} to node {node} (host {host_id})?"
    is_agreed = await consent.settle(question, assumed=assumed, dry_run=dry_run != flags.NO_DRY_RUN)
    key = names.DeviceKey(fabric=source.name, device=names.label(device_id))
    name = key.attachment
    outcome = {"device": device_id, "host": host_id, "node": node, "attachment": name, "changed": True}
    if not is_agreed and dry_run == flags.CLIENT:
        return outcome
    shared = numbers.Numbers.from_devices(listed.devices).find_shared(device)
    host = next((host for host in hosts if host.id == host_id), None)
    identity = identities.identify(device, shared=shared, host=host)
    unclean = device.id in source.cluster.fabric.status.unclean
    body = statements.held_by_hand(
        source.spec, key, device, node, host_id, identity=identity, unclean=unclean
    )
    made = await _create(api, body, dry_run=not is_agreed)
    if made is None:
        raise errors.DrawbarError(
            f"device {device_id} was taken meanwhile: DeviceAttachment {name} exists; choose another device"
        )
    if is_agreed:
        await _wait_until_attached(api, made)
    return outcome


async def attach_model(
    api: client.Client,
    source: observed.Source,
    adapter: contract.FabricAdapter,
    model: str,
    host_name: str,
    *,
    assumed: bool,
    dry_run: str = flags.NO_DRY_RUN,
) -> dict[str, Any]:
    """Create the DeviceAttachment of a free place, and return the outcome with the device that the fabric chose.

    Args and errors are those of `attach`; the model is the place's.
    """
    assert source.cluster is not None
    async with progress.show_activity("reading the fabric"):
        can = await adapter.capabilities()
        devices, hosts = (await adapter.devices()).devices, await adapter.hosts()
        mapped = oddities.node_map(source, hosts)
    if not any_of_model.is_needed(can):
        raise errors.DrawbarError(
            "the controller attaches devices of this fabric by their ids; name DEVICE and HOST in place of --model and --host"
        )
    direct.require_free(devices, model)
    node, host_id = _where(source.cluster, mapped, host_name)
    question = (
        f"Attach a device of the model {model}, which the fabric chooses, to node {node} (host {host_id})?"
    )
    is_agreed = await consent.settle(question, assumed=assumed, dry_run=dry_run != flags.NO_DRY_RUN)
    outcome = {"device": None, "host": host_id, "node": node, "attachment": None, "changed": True}
    if not is_agreed and dry_run == flags.CLIENT:
        return outcome
    host = next((host for host in hosts if host.id == host_id), None)
    for part in _find_free_parts(source.cluster, devices, model):
        key = names.DeviceKey(fabric=source.name, device=names.label(part.id))
        identity = identities.identify(part, host=host)
        body = statements.held_by_hand(source.spec, key, part, node, host_id, identity=identity)
        if (made := await _create(api, body, dry_run=not is_agreed)) is not None:
            break
    else:
        raise errors.DrawbarError(
            f"every device of the model {model} has a DeviceAttachment; detach one first"
        )
    if not is_agreed:
        return outcome
    attachment = await _wait_until_attached(api, made)
    return outcome | {"device": attachment.device_id, "attachment": key.attachment}


async def detach(
    api: client.Client,
    source: observed.Source,
    device_id: str,
    *,
    force: bool = False,
    assumed: bool,
    dry_run: str = flags.NO_DRY_RUN,
) -> dict[str, Any]:
    """Delete the DeviceAttachment of a device that is held by hand, and return the outcome once it is gone.

    Args:
        api: the cluster's API server.
        source: the Fabric.
        device_id: the fabric's id of the device.
        force: do not wait until the node releases it; also ends a detach in progress of a device that is not held by hand.
        assumed: whether the operator's agreement is assumed.
        dry_run: one of `flags.DRY_RUNS`; except with `none`, nothing is detached, and the outcome is the one that it would have.

    Raises:
        DrawbarError: a claim has the device, there is no attachment, or the operator declines.
    """
    attachment = views.attachment_of(device_id, source)
    if attachment is None:
        raise objects.Missing(
            f"device {device_id} has no DeviceAttachment of Fabric {source.name}; `drawbar fabric devices` shows the devices with one"
        )
    _refuse_claimed(attachment, force=force)
    name = attachment.metadata.name
    what_follows = (
        "The node is not asked: its programs lose the device, its kernel may fail, and only the next node erases the "
        "user's data."
        if force
        else "The node releases it first."
    )
    question = f"Detach device {device_id} from node {attachment.spec.node_name}? {what_follows}"
    is_agreed = await consent.settle(question, assumed=assumed, dry_run=dry_run != flags.NO_DRY_RUN)
    outcome = {"device": device_id, "host": None, "node": None, "attachment": name, "changed": True}
    if not is_agreed and dry_run == flags.CLIENT:
        return outcome
    if force:
        await _force(api, attachment, dry_run=not is_agreed)
    await api.delete(kinds.ATTACHMENT, name, uid=attachment.metadata.uid, dry_run=not is_agreed)
    if is_agreed:
        await _await_deletion(api, attachment)
    return outcome


async def _create(
    api: client.Client, body: dict[str, Any], *, dry_run: bool
) -> attachments.DeviceAttachment | None:
    """Create a DeviceAttachment and return it, or None if the device has one."""
    with contextlib.suppress(kube_errors.AlreadyExists):
        return await api.create(kinds.ATTACHMENT, body, into=attachments.DeviceAttachment, dry_run=dry_run)
    return None


async def _force(api: client.Client, attachment: attachments.DeviceAttachment, *, dry_run: bool) -> None:
    """Mark an attachment, so that the controller does not wait for its node."""
    body = {
        "metadata": {
            "uid": attachment.metadata.uid,
            "annotations": {attachments.FORCE_ANNOTATION: "true"},
        }
    }
    await api.patch(
        kinds.ATTACHMENT,
        attachment.metadata.name,
        body,
        content=client.Patch.MERGE,
        into=dict,
        manager=MANAGER,
        dry_run=dry_run,
    )


def _where(cluster: observed.Cluster, mapped: host_map.NodeMap, host_name: str) -> tuple[str, str]:
    """Return the node and the host for the name of either.

    Raises:
        DrawbarError: there is no such node, or the Fabric takes no more attachments.
    """
    if cluster.fabric.deleting:
        raise errors.DrawbarError(
            f"Fabric {cluster.fabric.metadata.name} is being deleted; attach nothing through it"
        )
    host_id = mapped.host_of.get(host_name, host_name)
    node = mapped.node_of(host_id)
    if node is None:
        raise objects.Missing(
            f"{host_name} is neither a node of the cluster nor a host that is mapped to one; `drawbar fabric hosts` lists both"
        )
    return node, host_id


def _find_free_parts(
    cluster: observed.Cluster, devices: Iterable[contract.Device], model: str
) -> tuple[contract.Device, ...]:
    """Return the free places of a model, high numbers first: claims get low ones."""
    held = holdings.Holdings.from_parts(map(holdings.Holding.from_attachment, cluster.attachments))
    by_id = {device.id: device for device in devices}
    arrangement = any_of_model.arrange(by_id, held, any_of_model.Memory(), None)
    free = [
        part for name, part in arrangement.parts.items() if name not in held.parts and part.model == model
    ]
    return tuple(reversed(free))


def _refuse_taken(source: observed.Source, device: contract.Device) -> None:
    attachment = views.attachment_of(device.id, source)
    if attachment is not None:
        claim = attachment.spec.claim
        holder = f"claim {claim.namespace}/{claim.name}" if claim is not None else "no claim"
        raise errors.DrawbarError(
            f"device {device.id} has the DeviceAttachment {attachment.metadata.name}, for {holder} on node "
            f"{attachment.spec.node_name}; choose another device, or detach it first"
        )
    if device.connection is not None:
        raise errors.DrawbarError(
            f"device {device.id} is attached to host {device.connection.host_id} without a DeviceAttachment of Fabric "
            f"{source.name}; detach it with the tool that attached it"
        )


def _refuse_claimed(attachment: attachments.DeviceAttachment, *, force: bool) -> None:
    """Raise an error if the attachment is a claim's, or for the next one."""
    if attachment.held_by_hand or (force and attachment.deleting):
        return
    claim = attachment.spec.claim
    holder = f"claim {claim.namespace}/{claim.name}" if claim is not None else "the next claim"
    raise errors.DrawbarError(
        f"DeviceAttachment {attachment.metadata.name} is not held by hand but for {holder}; delete the pod or claim, or "
        "for an idle device set the Fabric's policy.keepAttachedSeconds to 0"
    )


async def _wait_until_attached(
    api: client.Client, made: attachments.DeviceAttachment
) -> attachments.DeviceAttachment:
    """Return the attachment once the controller has attached the device; raise an error if the attach fails."""
    name, shown, last = made.metadata.name, set[str](), made
    activity = f"waiting for the controller to attach it with DeviceAttachment {name}"
    async with progress.show_activity(activity), aclosing(_states(api, name)) as states:
        async for state in states:
            if state is None or state.metadata.uid != made.metadata.uid or state.deleting:
                raise errors.DrawbarError(f"DeviceAttachment {name} was deleted meanwhile; see its Events")
            last = state
            _show(state, shown)
            if state.holds(attachments.ATTACHED):
                return state
            if state.status.error is not None and not state.status.error.retryable:
                break
    failure = last.status.error
    reason = (
        f"{failure.reason}: {failure.message}" if failure is not None else "the controller gives no reason"
    )
    raise errors.DrawbarError(
        f"DeviceAttachment {name} does not come about: {reason}; remove it with `drawbar fabric detach {last.device_id} "
        f"--fabric {last.spec.fabric}`"
    )


async def _await_deletion(api: client.Client, attachment: attachments.DeviceAttachment) -> None:
    """Return once the attachment is gone."""
    name, shown = attachment.metadata.name, set[str]()
    activity = f"waiting for the detach by DeviceAttachment {name}"
    async with progress.show_activity(activity), aclosing(_states(api, name)) as states:
        async for state in states:
            if state is None or state.metadata.uid != attachment.metadata.uid:
                return
            _show(state, shown)


def _show(attachment: attachments.DeviceAttachment, shown: set[str]) -> None:
    """Print each new condition on stderr."""
    for condition in attachment.status.conditions:
        line = tables.clean(
            f"{condition.type} {condition.status}: {condition.reason} {condition.message}".rstrip()
        )
        if line not in shown:
            shown.add(line)
            sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


async def _states(api: client.Client, name: str) -> AsyncGenerator[attachments.DeviceAttachment | None, None]:
    """Yield an attachment now and on each change; None if there is none."""
    only = f"metadata.name={name}"
    while True:
        listing = await api.list_all(kinds.ATTACHMENT, into=attachments.DeviceAttachment, fields=only)
        yield listing.items[0] if listing.items else None
        try:
            async for event in api.watch(
                kinds.ATTACHMENT,
                into=attachments.DeviceAttachment,
                fields=only,
                resource_version=listing.resource_version,
            ):
                if event.item is not None:
                    yield None if event.type == "DELETED" else event.item
        except (kube_errors.Expired, kube_errors.Unreachable):
            pass
        await asyncio.sleep(WATCH_AGAIN_SECONDS)
