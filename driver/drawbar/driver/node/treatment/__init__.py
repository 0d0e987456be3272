"""The release of a device: from a bound driver to a slot without power, or the reason why not."""

from drawbar.driver.node.treatment.executor import Releaser, Timeouts, problems
from drawbar.driver.node.treatment.plan import Blocked, Outcome, Released, Working

__all__ = ["Blocked", "Outcome", "Released", "Releaser", "Timeouts", "Working", "problems"]
