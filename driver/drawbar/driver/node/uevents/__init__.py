"""Hot-plug events from the kernel.

`listening("kernel")` subscribes to the kernel's netlink broadcast, `listening("unix:/path")` to the events of a mocked
sysfs tree. Both deliver the same values.
"""

from drawbar.driver.node.uevents.sources import KERNEL, Overflow, Uevent, UeventSource, listening, parse

__all__ = ["KERNEL", "Overflow", "Uevent", "UeventSource", "listening", "parse"]
