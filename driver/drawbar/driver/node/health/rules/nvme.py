"""Rules for the states of NVMe controllers (drivers/nvme/host/core.c). Pure."""

from drawbar.driver.node.health.rules.rule import Evidence, HealthRule, Look, Rule, label
from drawbar.driver.node.health.verdicts import Effect

_LIVE = "live"
_DEAD = "dead"


def _find_state(look: Look, *, dead: bool) -> Evidence | None:
    evidence = None
    for name, state in sorted(look.reading.nvme.items()):
        if state != _LIVE and (state == _DEAD) == dead:
            message = f"NVMe controller {name} ({look.reading.address}) is {state}"
            evidence = Evidence(message=message, value=label(state))
    return evidence


DEAD = HealthRule(
    name="nvme-dead",
    meaning="the kernel gave the controller up",
    default=Rule(effect=Effect.NO_SCHEDULE),
    find=lambda look: _find_state(look, dead=True),
)
NOT_LIVE = HealthRule(
    name="nvme-not-live",
    meaning="the controller is resetting, connecting or being deleted",
    default=Rule(effect=Effect.NO_SCHEDULE, hold_down_seconds=60.0),
    find=lambda look: _find_state(look, dead=False),
)
