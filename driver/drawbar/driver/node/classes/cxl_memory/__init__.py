"""CXL memory: a region with a dax device for one pod, or with movable online memory blocks of the node."""

from drawbar.driver.node.classes.cxl_memory.operations import CxlMemory

__all__ = ["CxlMemory"]
