"""CXL memory: a region, and on it a dax device for one pod, or memory blocks of the node that are online as movable."""

from drawbar.driver.node.classes.cxl_memory.operations import CxlMemory

__all__ = ["CxlMemory"]
