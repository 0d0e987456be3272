"""Rules for the device's presence, its response, and its driver. Pure."""

from drawbar.driver.catalogue import taints
from drawbar.driver.node.health.rules.rule import Evidence, HealthRule, Look, Rule
from drawbar.driver.node.health.verdicts import Effect


def _find_nothing(_: Look) -> None:
    """Return None: a reading proves presence. Absence and hanging reads have no reading (`judgement.observe`)."""


def _find_silent(look: Look) -> Evidence | None:
    if not look.reading.silent:
        return None
    addresses = ", ".join(look.reading.silent)
    return Evidence(message=f"{addresses} answers all ones: the card is dead, unpowered or pulled")


def _find_unbound(look: Look) -> Evidence | None:
    if look.before is None or look.reading.driver is not None:
        return None
    return Evidence(message=f"{look.reading.address} lost its driver {look.before}; look at the kernel's log")


LOST = HealthRule(
    name=taints.LOST.key,
    meaning="the device was pulled, or fell off the bus",
    default=Rule(effect=Effect.NO_EXECUTE),
    find=_find_nothing,
)
NOT_ANSWERING = HealthRule(
    name="not-answering",
    meaning="configuration space answers all ones, or a read hangs",
    default=Rule(effect=Effect.NO_SCHEDULE, hold_down_seconds=10.0),
    find=_find_silent,
)
DRIVER_UNBOUND = HealthRule(
    name="driver-unbound",
    meaning="the device lost its kernel driver",
    default=Rule(effect=Effect.NO_SCHEDULE, hold_down_seconds=10.0),
    find=_find_unbound,
    remember=lambda look: look.reading.driver or look.before,
)
