"""The simulated fabric: a fabric manager in memory, in one process or behind a UNIX socket, with failures on command.

Not emulated: link training, zones, power budgets, ids that differ between management and host, credentials, and a limit on
operations at a time.
"""

from drawbar.mocks.fabric.configuration import Configuration
from drawbar.mocks.fabric.simulation import SimulatedFabric

__all__ = ["Configuration", "SimulatedFabric"]
