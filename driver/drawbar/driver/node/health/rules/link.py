"""Rules for the PCI Express link of a card, compared with the most that both its ends support. Pure."""

from drawbar.driver.node.health.rules.rule import Evidence, HealthRule, Look, Rule
from drawbar.driver.node.health.samples import Reading


def _find_narrow(look: Look) -> Evidence | None:
    link = look.reading.link
    if link is None or link.most_width is None or link.width >= link.most_width:
        return None
    return Evidence(
        message=f"{look.reading.address} has a link of x{link.width} where both ends have x{link.most_width}",
        value=f"x{link.width}-of-x{link.most_width}",
    )


def _find_slow(look: Look) -> Evidence | None:
    reading, link = look.reading, look.reading.link
    if link is None or link.most_gts is None or link.speed_gts >= link.most_gts:
        return None
    if reading.device_class in look.thresholds.slow_link_expected:
        return None
    now, most = f"{link.speed_gts:g}", f"{link.most_gts:g}"
    message = f"{reading.address} has a link of {now} GT/s where both ends can {most} GT/s"
    return Evidence(message=message, value=f"{now}-of-{most}-GTs")


def _is_unknown(reading: Reading) -> bool:
    return reading.link is None


NARROW = HealthRule(
    name="link-narrow",
    meaning="the link has fewer lanes than both its ends",
    default=Rule(unhealthy=False, hold_down_seconds=60.0),
    find=_find_narrow,
    unknown=_is_unknown,
)
SLOW = HealthRule(
    name="link-slow",
    meaning="the link is slower than both its ends; not for GPUs",
    default=Rule(unhealthy=False, hold_down_seconds=60.0),
    find=_find_slow,
    unknown=_is_unknown,
)
