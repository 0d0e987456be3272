"""Observes the fabric managers: takes over what their sessions report, and tells the changes to the reconcilers."""

import asyncio
from dataclasses import dataclass, replace

from drawbar.driver import watching
from drawbar.driver.controller import (
    change_kinds,
    fabric_reconciler,
    facts,
    names,
)
from drawbar.driver.controller.attachments import calls, plan
from drawbar.driver.controller.cluster import Cluster
from drawbar.driver.controller.fabrics import losses
from drawbar.driver.controller.offers import any_of_model, memory_chunk
from drawbar.fabric import contract


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricObserver:
    """The listener of the sessions.

    Attributes:
        jobs: the reconciler of fabrics.
        changes: takes each change.
    """

    cluster: Cluster
    calls: calls.Calls
    jobs: fabric_reconciler.FabricReconciler
    changes: watching.Dispatcher

    def device_changed(self, fabric: str, old: contract.Device | None, new: contract.Device | None) -> None:
        """Take over a change of a device."""
        change = change_kinds.DeviceChange(fabric=fabric, old=old, new=new)
        attached = self.cluster.attachments.get(change.key.attachment) is not None
        self.changes.tell(replace(change, attached=attached))

    def hosts_changed(self, fabric: str) -> None:
        """Take over a change of hosts; those of a fabric that was just listed are mapped at once, the others together."""
        session = self.cluster.sessions.get(fabric)
        if session is not None and session.is_mapped:
            self.changes.tell(change_kinds.HostsChange())
            return
        self.jobs.labels.map(fabric)
        if session is not None:
            session.is_mapped = session.listed

    def operation_changed(self, fabric: str, operation: contract.Operation) -> None:
        """Take over how far an operation of this controller is."""
        uid = calls.attachment_uid(operation.request_id)
        key, side = self.cluster.placed.device(uid), self.calls.side(uid, operation.request_id)
        if key is None or side is None:
            return
        now = asyncio.get_running_loop().time()
        # What the call's answer reported already may be outdated by now.
        is_reported = self.calls.view(uid, side, now).state == plan.CallState.SUCCEEDED
        self.calls.settle(uid, side, operation, now, watched=True)
        session = self.cluster.sessions.get(fabric)
        if session is not None and operation.succeeded and operation.device is not None and not is_reported:
            session.learn(operation.device)
        self.changes.tell(change_kinds.OperationChange(devices=(key,)))

    def turn_came(self, key: names.DeviceKey) -> None:
        """Have the operation made for which the fabric has a place now."""
        self.changes.tell(change_kinds.OperationChange(devices=(key,)))

    def witnesses(self, fabric: str) -> dict[str, losses.Witness]:
        """Return by device name what the nodes report of the fabric's attachments."""
        absences = self.cluster.absences
        return {
            attachment.spec.device: losses.witness(
                attachment, node_gone=absences.is_gone(attachment.spec.node_name, (fabric,))
            )
            for attachment in self.cluster.placed.in_fabric(fabric)
        }

    def published(self, fabric: str) -> frozenset[str]:
        """Return the names of the devices in the fabric's slices, of a composite those of its members."""
        members = self.cluster.pools.composites(fabric)
        return frozenset(
            name
            for published in self.cluster.pools.in_fabric(fabric)
            for device in published.spec.devices
            for name in members.get(device.name, (device.name,))
        )

    def taken(self, fabric: str) -> any_of_model.Taken:
        """Return what DeviceAttachments and claims have taken of the fabric's places."""
        holds = tuple(map(any_of_model.Hold.from_attachment, self.cluster.placed.in_fabric(fabric)))
        claimed = (key.device for key in self.cluster.allocated.devices() if key.fabric == fabric)
        return any_of_model.Taken(holds=holds, claimed=frozenset(claimed))

    def shares(self, fabric: str) -> tuple[memory_chunk.Hold, ...]:
        """Return the DeviceAttachments of shares of the fabric."""
        holds = map(memory_chunk.Hold.from_attachment, self.cluster.placed.of_shares(fabric))
        return tuple(hold for hold in holds if hold is not None)

    def troubles_changed(self, fabric: str) -> None:
        """Have the Fabric's status written."""
        self.changes.tell(change_kinds.TroublesChange(fabric=fabric))

    def connection_changed(self, fabric: str) -> None:
        """Take over that the manager is reached, or no longer."""
        devices = tuple(key for key in facts.known_devices(self.cluster) if key.fabric == fabric)
        after = self.jobs.grace_seconds(fabric)
        self.changes.tell(change_kinds.ConnectionChange(fabric=fabric, publish_after=after, devices=devices))
