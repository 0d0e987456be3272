"""What a change of an attachment teaches about its device and its host."""

import datetime

from drawbar.driver.api import attachments
from drawbar.driver.controller.fabrics import session
from drawbar.driver.controller.pools import sources


def learn(
    view: session.Session | None,
    old: attachments.DeviceAttachment | None,
    new: attachments.DeviceAttachment | None,
    now: datetime.datetime,
) -> bool:
    """Keeps account of what failed and what worked, and where; gives whether a failure is new."""
    if view is None or new is None:
        return False
    before, after = sources.verdict(old), sources.verdict(new)
    if after.failing and not before.failing:
        view.faults.failed(new.spec.device, new.spec.host_id, now)
        return True
    if not after.failing and new.holds(attachments.VISIBLE):
        view.faults.succeeded(new.spec.device, new.spec.host_id)
    return False
