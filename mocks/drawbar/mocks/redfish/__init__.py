"""A stateful Redfish service: PCIe fabrics by zones or connections of endpoints, and composition by resource blocks.

Not emulated: accounts and roles, `$filter` and `$select`, push subscriptions.
"""

from drawbar.mocks.redfish.configuration import Configuration, parse
from drawbar.mocks.redfish.faults import Fault, FaultKind
from drawbar.mocks.redfish.service import Service, serving

__all__ = ["Configuration", "parse", "Fault", "FaultKind", "Service", "serving"]
