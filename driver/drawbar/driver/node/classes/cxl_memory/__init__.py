"""CXL memory as system memory: a region, a dax device, and memory blocks that are online as movable."""

from drawbar.driver.node.classes.cxl_memory.operations import CxlMemory

__all__ = ["CxlMemory"]
