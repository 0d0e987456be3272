"""A mocked /sys: a host with hot-plug slots for cards, with uevents."""

from drawbar.mocks.sysfs.aer import Severity
from drawbar.mocks.sysfs.device import MockDevice
from drawbar.mocks.sysfs.errors import ImpossibleWorld
from drawbar.mocks.sysfs.nodes import build
from drawbar.mocks.sysfs.recording import RecordedEvent, load_events, load_recording
from drawbar.mocks.sysfs.states import Arrival
from drawbar.mocks.sysfs.tree import SysfsTree

__all__ = [
    "Arrival",
    "ImpossibleWorld",
    "MockDevice",
    "RecordedEvent",
    "Severity",
    "SysfsTree",
    "build",
    "load_events",
    "load_recording",
]
