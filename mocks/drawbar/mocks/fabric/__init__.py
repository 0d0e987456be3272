"""The simulated fabric: a fabric manager in memory, in one process or behind a UNIX socket, with failures on command.

Limits: no link training, zones, power budgets or credentials, no different ids for management and host, and no limit
on simultaneous operations.
"""

from drawbar.mocks.fabric.configuration import Configuration
from drawbar.mocks.fabric.simulation import SimulatedFabric

__all__ = ["Configuration", "SimulatedFabric"]
