"""A double of QEMU for fabric adapters: hot-plug through QMP, with its accidents."""

from drawbar.mocks.qemu.machine import Files, Guest, VirtualMachine
from drawbar.mocks.qemu.server import Stumble, serving

__all__ = ["Files", "Guest", "VirtualMachine", "Stumble", "serving"]
