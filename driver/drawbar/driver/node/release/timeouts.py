"""How long the release of a device waits for what."""

from dataclasses import dataclass, fields

HIGHEST_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """The times of a release.

    Attributes:
        kernel_seconds: how long one call to the kernel may take before it is reported as blocked.
        progress_seconds: how long a step that the kernel took may stay without effect before that is reported.
        next_seconds: the pause between two steps.
        blocked_seconds: how long until a blocked release is looked at again.
    """

    kernel_seconds: float = 30.0
    progress_seconds: float = 10.0
    next_seconds: float = 0.01
    blocked_seconds: float = 2.0


def problems(settings: Timeouts) -> list[str]:
    """One sentence for each value that cannot be."""
    found = []
    for field in fields(settings):
        value = getattr(settings, field.name)
        # Written so that it holds for no NaN.
        if not 0 < value <= HIGHEST_SECONDS:
            found.append(
                f"release {field.name} {value} is not a number of seconds from above 0 to {HIGHEST_SECONDS:.0f}"
            )
    return found
