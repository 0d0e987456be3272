"""Which tests apply to a site, and which devices each of them touches. Pure: no I/O, no clock.

A test states its needs by a marker, `@pytest.mark.hardware(nvme=1, writes=True)`: so many devices of each class, and
whether their contents are lost. One without the marker needs the lab. One with `each=True` is a test of one device,
which is named in its id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from field import configuration

LAB_ALONE = "the lab's electrician or its machine is needed (pull, press, reset, another slot, QEMU itself)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """A test as collected.

    Attributes:
        name: pytest's id of it.
        hardware: it can run outside of the lab.
        needs: how many devices it wants, by class.
        writes: what these hold is lost.
        device: the id of the one device that it is about, or nothing.
    """

    name: str
    hardware: bool = False
    needs: Mapping[str, int] | None = None
    writes: bool = False
    device: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What becomes of a test.

    Attributes:
        test: the test.
        devices: what it touches, in the order in which it gets them.
        reason: why it is left out; empty where it runs.
    """

    test: Test
    devices: tuple[configuration.Device, ...] = ()
    reason: str = ""


def choose(tests: Sequence[Test], site: configuration.Site) -> tuple[Choice, ...]:
    """Decide about each test; the same tests and site give the same devices."""
    return tuple(_decide(test, site.devices) for test in tests)


def _decide(test: Test, listed: Sequence[configuration.Device]) -> Choice:
    if not test.hardware:
        return Choice(test=test, reason=LAB_ALONE)
    if test.device:
        return Choice(test=test, devices=tuple(device for device in listed if device.id == test.device))
    chosen: list[configuration.Device] = []
    for device_class, count in (test.needs or {}).items():
        fit = [device for device in listed if device.device_class == device_class]
        usable = [device for device in fit if device.expendable or not test.writes]
        if len(usable) < count:
            return Choice(test=test, reason=_explain_shortage(device_class, count, len(fit), len(usable)))
        chosen += usable[:count]
    return Choice(test=test, devices=tuple(chosen))


def _explain_shortage(device_class: str, count: int, listed: int, usable: int) -> str:
    if listed >= count:
        return f"writes to {count} of class {device_class}, and {usable} listed say `contents: lose`"
    return f"wants {count} of class {device_class}, and {listed} are listed"
