"""A mocked /sys: a host with hot-plug slots that cards are put into and taken out of, with uevents."""

from drawbar.mocks.sysfs.device import MockDevice
from drawbar.mocks.sysfs.errors import ImpossibleWorld
from drawbar.mocks.sysfs.recording import load_recording
from drawbar.mocks.sysfs.tree import SysfsTree

__all__ = ["ImpossibleWorld", "MockDevice", "SysfsTree", "load_recording"]
