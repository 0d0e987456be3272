"""What a change of an attachment teaches about its device and its host."""

import datetime

from drawbar.driver.api import attachments
from drawbar.driver.controller.fabrics import session
from drawbar.driver.controller.pools import causes


def learn(
    view: session.Session | None,
    old: attachments.DeviceAttachment | None,
    new: attachments.DeviceAttachment | None,
    now: datetime.datetime,
) -> bool:
    """Keeps account of what failed and what worked, and where; gives whether a failure is new."""
    if view is None or new is None:
        return False
    before, after = causes.failure(old), causes.failure(new)
    if after is not None and before is None:
        view.faults.failed(new.spec.device, new.spec.host_id, now)
        return True
    if after is None and new.holds(attachments.VISIBLE):
        view.faults.succeeded(new.spec.device, new.spec.host_id)
    return False
