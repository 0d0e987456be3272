"""The simulated fabric: a fabric manager in memory, in one process or behind a UNIX socket.

Not emulated: link training, zones, power budgets, ids that differ between management and host, and events that
get lost.
"""

from drawbar.mocks.fabric.configuration import Configuration
from drawbar.mocks.fabric.simulation import SimulatedFabric

__all__ = ["Configuration", "SimulatedFabric"]
