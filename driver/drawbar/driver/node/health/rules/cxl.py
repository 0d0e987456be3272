"""CXL memory devices: whether they are enabled, map memory and give access to their media; pure."""

from drawbar.driver.node.health.rules.rule import Evidence, HealthRule, Look, Rule
from drawbar.driver.node.health.samples import Memdev
from drawbar.driver.node.health.verdicts import Effect

# The other states (`disabled`, `unlocked`, `frozen`) leave the media usable.
_UNUSABLE = frozenset({"locked", "sanitize"})


def _enabled(look: Look) -> frozenset[str]:
    before = look.before or frozenset()
    return frozenset(one.name for one in look.reading.memdevs if one.driver or one.name in before)


def _mapped(look: Look) -> frozenset[str]:
    before = look.before or frozenset()
    return frozenset(one.name for one in look.reading.memdevs if one.committed or one.name in before)


def _disabled(look: Look) -> Evidence | None:
    found = None
    for one in look.reading.memdevs:
        if one.driver is None and one.name in (look.before or ()):
            found = Evidence(message=f"{_where(look, one)} was disabled: it has no driver any more")
    return found


def _uncommitted(look: Look) -> Evidence | None:
    found = None
    for one in look.reading.memdevs:
        if one.committed == 0 and one.name in (look.before or ()):
            found = Evidence(message=f"the memory of {_where(look, one)} is no longer mapped")
    return found


def _locked(look: Look) -> Evidence | None:
    found = None
    for one in look.reading.memdevs:
        if one.security in _UNUSABLE:
            message = f"{_where(look, one)} has media in state {one.security}"
            found = Evidence(message=message, value=one.security)
    return found


def _where(look: Look, memdev: Memdev) -> str:
    return f"CXL memory device {memdev.name} ({look.reading.address})"


DISABLED = HealthRule(
    name="cxl-disabled",
    meaning="the memory device was disabled",
    default=Rule(effect=Effect.NO_SCHEDULE, hold_down_seconds=10.0),
    find=_disabled,
    remember=_enabled,
)
UNCOMMITTED = HealthRule(
    name="cxl-uncommitted",
    meaning="its memory was mapped and no longer is; mapping it anew takes a moment",
    default=Rule(effect=Effect.NO_SCHEDULE, hold_down_seconds=60.0),
    find=_uncommitted,
    remember=_mapped,
)
LOCKED = HealthRule(
    name="cxl-locked",
    meaning="its media is locked, or being sanitised",
    default=Rule(effect=Effect.NO_SCHEDULE, hold_down_seconds=60.0),
    find=_locked,
)
