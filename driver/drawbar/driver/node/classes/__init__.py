"""The node's rules for each class of device, one module each; see `docs/development/extending.md`."""

from drawbar.driver.node.classes.generic import Generic as Class
from drawbar.driver.node.classes.registry import CLASSES, by_name, classify
from drawbar.driver.node.classes.users import Host

__all__ = ["CLASSES", "Class", "Host", "classify", "by_name"]
