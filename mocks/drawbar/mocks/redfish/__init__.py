"""A Redfish service that keeps state: PCIe fabrics by zones or connections of endpoints, and composition by resource blocks.

What it does not emulate: accounts and roles, `$filter` and `$select`, push subscriptions, memory chunks that clients make.
"""

from drawbar.mocks.redfish.configuration import Configuration, parse
from drawbar.mocks.redfish.faults import Fault, FaultKind
from drawbar.mocks.redfish.service import Service, serving

__all__ = ["Configuration", "parse", "Fault", "FaultKind", "Service", "serving"]
