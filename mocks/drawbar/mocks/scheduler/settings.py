"""The times of the scheduler double, with the real scheduler's defaults."""

from dataclasses import dataclass

from drawbar.driver import backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How long things take.

    Attributes:
        poll_seconds: pause between two looks at the binding conditions; the first look is at once.
        binding_timeout_seconds: after this long, counted from the allocation, a pod no longer waits for them.
        backoff_first_seconds: pause after a pod's first failed attempt; doubles with every further one.
        backoff_max_seconds: the longest such pause.
        seed: of the choices that are left to chance, which there are in classic DRA alone; None for others each time.
    """

    poll_seconds: float = 5.0
    binding_timeout_seconds: float = 600.0
    backoff_first_seconds: float = 1.0
    backoff_max_seconds: float = 10.0
    seed: int | None = None

    def backoff_seconds(self, attempts: int) -> float:
        """The pause after that many failed attempts (at least one)."""
        return backoff.longest(attempts, self.backoff_first_seconds, self.backoff_max_seconds)
