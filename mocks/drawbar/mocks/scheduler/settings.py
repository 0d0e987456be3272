"""The times of the scheduler double, with the real scheduler's defaults."""

from dataclasses import dataclass

from drawbar.mocks.kube import backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The times of the scheduler double.

    Attributes:
        poll_seconds: pause between two checks of the binding conditions; the first check is at once.
        binding_timeout_seconds: time limit of a pod's wait for them, from the allocation.
        backoff_first_seconds: pause after a pod's first failed attempt; doubles with every further one.
        backoff_max_seconds: the longest such pause.
        seed: seed of the random choices, only in classic DRA; None for different ones each time.
    """

    poll_seconds: float = 5.0
    binding_timeout_seconds: float = 600.0
    backoff_first_seconds: float = 1.0
    backoff_max_seconds: float = 10.0
    seed: int | None = None

    def backoff_seconds(self, attempts: int) -> float:
        """Return the pause after this number of failed attempts (at least one), in seconds."""
        return backoff.longest(attempts, self.backoff_first_seconds, self.backoff_max_seconds)
