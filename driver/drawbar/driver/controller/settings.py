"""What the controller can be told, checked as a whole."""

import os
import socket
from dataclasses import dataclass, field

from drawbar.driver import errors

DRIVER = "drawbar.dev"
BINDING_TIMEOUT_SECONDS = 600.0
MARGIN_SECONDS = 30.0
NAMESPACE = "drawbar"
LEASE = "drawbar-controller"
# Seven writes per attach and detach: more than forty of both in a second.
WRITES_PER_SECOND = 400.0


def own_identity() -> str:
    """Two processes on one host are two candidates."""
    return f"{socket.gethostname()}-{os.getpid()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The controller's configuration.

    Attributes:
        driver: the DRA driver's name.
        kubeconfig: None: `$KUBECONFIG`, else the pod's service account.
        binding_timeout_seconds: the scheduler's own (`DynamicResourcesArgs.bindingTimeout`); the controller gives
            up `MARGIN_SECONDS` before it, at the latest.
        leader_election: wait for the lease before doing anything; without it only one may run.
        lease_namespace: where the lease is.
        writes_per_second: to the API server, sustained; a lease is renewed without waiting for its turn.
        writes_burst: at once after a quiet time.
        identity: who we are in the lease; the same after a restart of one pod, never the same for two pods.
    """

    driver: str = DRIVER
    kubeconfig: str | None = None
    binding_timeout_seconds: float = BINDING_TIMEOUT_SECONDS
    leader_election: bool = True
    lease_namespace: str = NAMESPACE
    writes_per_second: float = WRITES_PER_SECOND
    writes_burst: int = 500
    identity: str = field(default_factory=own_identity)

    @property
    def patience_seconds(self) -> float:
        """From an allocation to giving up: the margin leaves the scheduler time to read the failure."""
        return self.binding_timeout_seconds - min(MARGIN_SECONDS, self.binding_timeout_seconds / 4)


def validate(settings: Settings) -> None:
    """Lists everything that is wrong at once.

    Raises:
        errors.UsageError: something is.
    """
    problems = []
    if not settings.driver or len(settings.driver) > 63:
        problems.append(f"--driver-name {settings.driver!r} must be a DNS name of at most 63 characters")
    if settings.binding_timeout_seconds < 1:
        problems.append(
            f"--binding-timeout {settings.binding_timeout_seconds} is below the 1 s that the scheduler allows"
        )
    # Written so that it holds for no NaN.
    if not (settings.writes_per_second > 0 and settings.writes_burst > 0):
        problems.append("--api-writes-per-second must be above 0")
    if settings.leader_election and not (settings.identity and settings.lease_namespace):
        problems.append("leader election needs --identity and --lease-namespace, or --no-leader-election")
    if problems:
        raise errors.UsageError("; ".join(problems))
