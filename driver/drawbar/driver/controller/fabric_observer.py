"""The observer of the fabric managers: it takes in their sessions' reports, and passes the changes to the reconcilers."""

import asyncio

import msgspec

from drawbar.driver import watching
from drawbar.driver.controller import (
    change_kinds,
    fabric_reconciler,
    facts,
    names,
)
from drawbar.driver.controller.attachments import calls
from drawbar.driver.controller.attachments.plans import part_state
from drawbar.driver.controller.cluster import Cluster
from drawbar.fabric import contract


class FabricObserver(msgspec.Struct, frozen=True, kw_only=True):
    """The listener of the sessions.

    Attributes:
        changes: receives each change.
    """

    cluster: Cluster
    calls: calls.Calls
    jobs: fabric_reconciler.FabricReconciler
    changes: watching.Dispatcher

    def device_changed(self, fabric: str, old: contract.Device | None, new: contract.Device | None) -> None:
        """Take in a change of a device."""
        change = change_kinds.DeviceChange(fabric=fabric, old=old, new=new)
        attached = self.cluster.attachments.get(change.key.attachment) is not None
        self.changes.tell(msgspec.structs.replace(change, attached=attached))

    def hosts_changed(self, fabric: str) -> None:
        """Take in a change of hosts; a fabric that was just listed is mapped at once, the others together."""
        session = self.cluster.sessions.get(fabric)
        if session is not None and session.is_mapped:
            self.changes.tell(change_kinds.HostsChange())
            return
        self.jobs.labels.map(fabric)
        if session is not None:
            session.is_mapped = session.has_listing

    def operation_changed(self, fabric: str, operation: contract.Operation) -> None:
        """Take in the progress of this controller's operation."""
        uid = calls.attachment_uid(operation.request_id)
        key, side = self.cluster.placed.device(uid), calls.side(self.calls, uid, operation.request_id)
        if key is None or side is None:
            return
        now = asyncio.get_running_loop().time()
        # The report in the call's answer may be outdated by now.
        is_reported = self.calls.view(uid, side, now).state == part_state.CallState.SUCCEEDED
        self.calls.settle(uid, side, operation, now, watched=True)
        session = self.cluster.sessions.get(fabric)
        if session is not None and operation.succeeded and operation.device is not None and not is_reported:
            session.inventory.learn(operation.device)
        self.changes.tell(change_kinds.OperationChange(devices=(key,)))

    def operation_admitted(self, key: names.DeviceKey) -> None:
        """Have the operation made, since the fabric can take it now."""
        self.changes.tell(change_kinds.OperationChange(devices=(key,)))

    def troubles_changed(self, fabric: str) -> None:
        """Have the Fabric's status written."""
        self.changes.tell(change_kinds.TroublesChange(fabric=fabric))

    def connection_changed(self, fabric: str) -> None:
        """Take in a change of the manager's connection."""
        devices = tuple(key for key in facts.list_known_devices(self.cluster) if key.fabric == fabric)
        after = self.jobs.grace_seconds(fabric)
        self.changes.tell(change_kinds.ConnectionChange(fabric=fabric, publish_after=after, devices=devices))
