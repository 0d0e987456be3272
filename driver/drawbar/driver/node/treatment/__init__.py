"""The treatment of a device between two users, and before it leaves its node: drain, quiesce, clean, erase, reset and power."""

from drawbar.driver.node.treatment.executor import Executor, Timeouts, problems
from drawbar.driver.node.treatment.observation import Order, Progress
from drawbar.driver.node.treatment.plan import Blocked, Done, InProgress, Outcome

__all__ = [
    "Blocked",
    "Done",
    "Executor",
    "InProgress",
    "Order",
    "Outcome",
    "Progress",
    "Timeouts",
    "problems",
]
