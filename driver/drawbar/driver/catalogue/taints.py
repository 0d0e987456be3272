"""The taints that Drawbar sets on devices, without those of the health findings (`node.health.rules`).

One key may have several rows, which its values tell apart. `controller.pools.causes` chooses the row and fills in its
description; `drawbar explain` shows the remedy, and docs/reference/taints.md is written from the table.
"""

import msgspec

from drawbar.driver.catalogue import links

NO_EXECUTE = "NoExecute"
NO_SCHEDULE = "NoSchedule"
NO_EFFECT = "None"


class Taint(msgspec.Struct, frozen=True):
    """One reason to keep pods from a device.

    Attributes:
        key: without the driver's name.
        value: the taint's value; a fact's name in braces stands for that fact.
        lifted: the end, as a clause that follows "lifted".
        remedy: the next step.
        page: a page of docs/ with the details.
        source: the detector of the cause: fabric, node, controller or operator.
        description: the taint's own sentence, with facts in braces; empty for taints that only nodes set.
        data: the names of the taint's facts for programs.
        is_fault: whether it shows a fault; False for a taint on a sound device.
    """

    key: str
    value: str = ""
    effect: str = NO_SCHEDULE
    cause: str = ""
    lifted: str = ""
    remedy: str = ""
    page: str = ""
    source: str = ""
    description: str = ""
    data: tuple[str, ...] = ()
    is_fault: bool = True

    def advise(self, **objects: str) -> str:
        """Return the remedy in the form of a terminal, with the names of these objects; see `links.advise`."""
        return links.advise(self.remedy, self.page, **objects)


# A row has the effect; the cause and the end, for the page; the remedy and its page; the source, description and data of the taint itself; False if it shows no fault.
# fmt: off
ATTACH_FAILED = Taint("attach-failed", "{reason}", NO_SCHEDULE,
    "Its attach failed, or the node could not use it.",
    "`policy.probationSeconds` after the failure and its DeviceAttachment's end (a node's own device: 60 s or 5 minutes after the failure); longer after further failures, up to a day",
    "wait for the end of its probation: `policy.probationSeconds`, of a node's own device 60 s to a day", "conditions.md#whose-fault-a-failure-is",
    "controller", "Attaching it{where} failed ({reason}); lifted {probationSeconds} s after the failure, once its DeviceAttachment is gone.",
    ("node", "reason", "message", "failures", "probationSeconds"))
LOST = Taint("device-lost", "", NO_EXECUTE,
    "It vanished from its node or the fabric, while a claim has it.",
    "when the claim releases it",
    "check the device's link and power", "",
    "node", "Node {node} lost it while a claim has it; lifted when the claim releases it.", ("node", "message"))
LOST_BY_FABRIC = Taint("device-lost", "", NO_EXECUTE, source="fabric", data=("node",),
    description="Its fabric manager no longer lists it while a claim has it; lifted when the claim releases it.")
IN_USE = Taint("in-use", "", NO_SCHEDULE,
    "A host outside this cluster has it.", "when the fabric reports it as free",
    "wait for the other host to release it", "",
    "fabric", "Host {host} has it, and no claim of this cluster; lifted when the fabric manager reports that it is free.", ("host",), False)
HELD_BY_HAND = Taint("in-use", "manual", NO_SCHEDULE,
    "An operator attached it.", "when that DeviceAttachment is gone",
    "`kubectl delete deviceattachment NAME`", "",
    "operator", "An operator attached it by hand to node {node}; lifted when that DeviceAttachment is deleted and the device is free.", ("node", "host"), False)
RELEASING = Taint("in-use", "releasing", NO_SCHEDULE,
    "The release has taken 30 s.", "when the fabric reports it as free", "wait; `drawbar doctor` names silent nodes", "",
    "controller", "Its release from node {node} takes long; lifted when the fabric manager reports it as free.", ("node",), False)
RELEASE_BLOCKED = Taint("in-use", "releasing", NO_SCHEDULE,
    "Its node does not release it.", "when the fabric reports it as free", "read its DeviceAttachment's condition `Released`", "",
    "node", "Node {node} does not release it ({reason}); lifted when the fabric manager reports it as free.", ("node", "reason"))
CLEANING = Taint("cleaning", "", NO_SCHEDULE,
    "Its node erases the previous user's data.", "when it is clean and, unless it is the node's own, free at the fabric",
    "wait for the end of the erase", "node-release.md",
    "node", "Node {node} erases its last user's data; lifted when that is done and it is free.", ("node", "reason"), False)
NOT_CLEANED = Taint("not-cleaned", "", NO_SCHEDULE,
    "Its node failed to erase it and keeps retrying.", "when an erase succeeds, or the device is detached by force",
    "read its DeviceAttachment's condition `Released`", "node-release.md#blocked-releases",
    "node", "Node {node} failed to erase the previous user's data and keeps retrying; the condition Released of its DeviceAttachment has the reason; lifted when that is done and it is free.", ("node", "reason"))
FABRIC_CRITICAL = Taint("fabric-health", "critical", NO_SCHEDULE,
    "The manager reports it as critical.", "when the manager reports it as healthy; later if that keeps changing",
    "check the device at the fabric manager", "controller.md#hold-down",
    "fabric", "Its fabric manager reports it as critical; lifted when it reports it well, and after several changes only once that has held for a while.", ("fabric",))
FABRIC_WARNING = Taint("fabric-health", "warning", NO_EFFECT,
    "The manager reports a warning.", "likewise",
    "check the device at the fabric manager, which reports a warning", "controller.md#hold-down",
    "fabric", data=("fabric",), description="Its fabric manager reports it as warning; lifted when it reports it well, and after several changes only once that has held for a while.")
NODE_UNHEALTHY = Taint("node-unhealthy", "", NO_SCHEDULE,
    "Its node reports it as unhealthy, without a finding.", "when the node reports it as healthy, or has released it",
    "read its DeviceAttachment's `status.node.healthMessage`", "health.md",
    "node", "Node {node} reports it unhealthy; lifted when it reports it healthy or has released it.", ("node", "message"))
FABRIC_UNREACHABLE = Taint("fabric-unreachable", "", NO_SCHEDULE,
    "The manager has been silent for `policy.unreachableGraceSeconds`; the device is free.", "when the manager answers; later if it keeps stopping",
    "restore the connection to the fabric manager", "",
    "controller", "The fabric manager of the Fabric {fabric} has not answered for longer than policy.unreachableGraceSeconds; lifted when it answers.", ("fabric",), False)
MAINTENANCE = Taint("maintenance", "", NO_SCHEDULE,
    "A Maintenance names it, or all of its Fabric.", "when none names it any more",
    "`drawbar maintenance off device/NAME`, after the work; `drawbar maintenance list` shows the reason", "maintenance.md",
    "operator", "A Maintenance of the Fabric {fabric} names it, or all; lifted when none does any more (kubectl get maintenances).", ("fabric",), False)
WEAR_LIMITED = Taint("wear-limited", "", NO_SCHEDULE,
    "It was erased as often in a day as `policy.erasesPerDevicePerDay` allows.", "when the oldest erasure is a day old",
    "wait, or raise the Fabric's `policy.erasesPerDevicePerDay`", "",
    "controller", "It was erased {erasures} times within a day, as often as policy.erasesPerDevicePerDay of the Fabric {fabric} allows; lifted when fewer of these erasures are less than a day old.", ("fabric",), False)
NOT_OFFERED = Taint("not-offered", "", NO_SCHEDULE,
    "`spec.offer` leaves it out, but a claim has it.", "when that claim releases it; withdrawn then",
    "do nothing, or add it to the Fabric's `spec.offer`", "fabrics.md#a-part-of-a-manager",
    "operator", "spec.offer of the Fabric {fabric} leaves it out; it is withdrawn when its claim releases it.", ("fabric",), False)
RESERVED = Taint("reserved", "", NO_SCHEDULE,
    "`policy.immediate` reserves it, but a claim of the scheduler has it.", "likewise",
    "ask for immediate allocation, or remove it from the Fabric's `policy.immediate`", "immediate.md",
    "operator", "policy.immediate of the Fabric {fabric} reserves it for immediate allocation; it is withdrawn when its claim releases it.", ("fabric",), False)
FINDING = Taint("", "{value}", source="node", data=("node", "reason", "message"),
    description="Node {node} found {name}{what}; lifted when the node no longer finds it or has released the device.")
# fmt: on

TAINTS = tuple(value for value in vars().values() if isinstance(value, Taint) and value.key)
KEYS = frozenset(taint.key for taint in TAINTS)


def find(key: str, value: str = "") -> Taint | None:
    """Return the row with the remedy for a taint, or None if the key is not of this table."""
    rows = [taint for taint in TAINTS if taint.key == key and taint.remedy]
    return next((taint for taint in rows if taint.value == value), rows[0] if rows else None)
