"""The category of a device's state, the same in status, page and terminal; pure."""

from drawbar.driver.cli.status import tree

USED, FREE, MOVING, KEPT, BLOCKED, FAILED = "used", "free", "moving", "kept", "blocked", "failed"
WORDS = {
    USED: "in use",
    FREE: "free",
    MOVING: "moving",
    KEPT: "kept",
    BLOCKED: "tainted",
    FAILED: "failed",
}
"""The word for each category; a kept device is attached without a claim."""
_BY_STATE = {
    "Failed": FAILED,
    tree.FREE: FREE,
    tree.IN_USE: USED,
    "Ready": USED,
    tree.HELD: KEPT,
    "Idle": KEPT,
}


def judge(device: tree.Device) -> str:
    """Return the category of a device; a free device with a taint is blocked."""
    category = _BY_STATE.get(device.state, MOVING)
    if category == FREE and any(taint.effect != "None" for taint in device.taints):
        return BLOCKED
    return category
