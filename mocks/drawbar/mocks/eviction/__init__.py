"""Double of the device taint eviction controller of kube-controller-manager."""

from drawbar.mocks.eviction.server import serving
from drawbar.mocks.eviction.settings import Settings

__all__ = ["serving", "Settings"]
