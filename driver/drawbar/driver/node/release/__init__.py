"""The release of a device: from a bound driver to a slot without power, or the reason why not."""

from drawbar.driver.node.release.plan import Blocked, Outcome, Released, Working
from drawbar.driver.node.release.releaser import Releaser, Timeouts, problems

__all__ = ["Blocked", "Outcome", "Released", "Releaser", "Timeouts", "Working", "problems"]
