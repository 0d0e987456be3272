"""The changes that the reconciler of attachments watches; each maps to devices. Pure."""

from drawbar.driver.controller import change_kinds
from drawbar.driver.watching import watch

WATCHES = (
    watch("term: devices", change_kinds.TermChange, lambda c: c.devices),
    watch("object can be read: devices", change_kinds.ReadableChange, lambda c: c.devices),
    watch("fabric gone: its devices", change_kinds.FabricChange, lambda c: c.unserved),
    watch("attachment: device", change_kinds.AttachmentChange, lambda c: [c.key]),
    watch("attachment: members of its composite", change_kinds.AttachmentChange, lambda c: c.companions),
    watch("claim: devices", change_kinds.ClaimChange, lambda c: c.devices),
    watch(
        "node lost or found: its devices",
        change_kinds.NodeChange,
        lambda c: c.attached,
        when=lambda c: c.is_lost_or_found,
    ),
    watch("device", change_kinds.DeviceChange, lambda c: [c.key]),
    watch("connection: devices", change_kinds.ConnectionChange, lambda c: c.devices),
    watch("operation", change_kinds.OperationChange, lambda c: c.devices),
)
