"""Rules for CXL memory devices: whether they are enabled, map memory and give access to their media. Pure."""

from drawbar.driver.node.health.rules.rule import Evidence, HealthRule, Look, Rule
from drawbar.driver.node.health.samples import Memdev
from drawbar.driver.node.health.verdicts import Effect

# The other states (`disabled`, `unlocked`, `frozen`) leave the media usable.
_UNUSABLE = frozenset({"locked", "sanitize"})


def _remember_enabled(look: Look) -> frozenset[str]:
    before = look.before or frozenset()
    return frozenset(memdev.name for memdev in look.reading.memdevs if memdev.driver or memdev.name in before)


def _remember_mapped(look: Look) -> frozenset[str]:
    before = look.before or frozenset()
    return frozenset(
        memdev.name for memdev in look.reading.memdevs if memdev.committed or memdev.name in before
    )


def _find_disabled(look: Look) -> Evidence | None:
    evidence = None
    for memdev in look.reading.memdevs:
        if memdev.driver is None and memdev.name in (look.before or ()):
            evidence = Evidence(message=f"{_describe(look, memdev)} was disabled: it has no driver any more")
    return evidence


def _find_uncommitted(look: Look) -> Evidence | None:
    evidence = None
    for memdev in look.reading.memdevs:
        if memdev.committed == 0 and memdev.name in (look.before or ()):
            evidence = Evidence(message=f"the memory of {_describe(look, memdev)} is no longer mapped")
    return evidence


def _find_locked(look: Look) -> Evidence | None:
    evidence = None
    for memdev in look.reading.memdevs:
        if memdev.security in _UNUSABLE:
            message = f"{_describe(look, memdev)} has media in state {memdev.security}"
            evidence = Evidence(message=message, value=memdev.security)
    return evidence


def _describe(look: Look, memdev: Memdev) -> str:
    return f"CXL memory device {memdev.name} ({look.reading.address})"


DISABLED = HealthRule(
    name="cxl-disabled",
    meaning="the CXL memory device was disabled",
    default=Rule(effect=Effect.NO_SCHEDULE, hold_down_seconds=10.0),
    find=_find_disabled,
    remember=_remember_enabled,
)
UNCOMMITTED = HealthRule(
    name="cxl-uncommitted",
    meaning="CXL memory lost its decoder",
    default=Rule(effect=Effect.NO_SCHEDULE, hold_down_seconds=60.0),
    find=_find_uncommitted,
    remember=_remember_mapped,
)
LOCKED = HealthRule(
    name="cxl-locked",
    meaning="the media is locked, or being sanitised",
    default=Rule(effect=Effect.NO_SCHEDULE, hold_down_seconds=60.0),
    find=_find_locked,
)
