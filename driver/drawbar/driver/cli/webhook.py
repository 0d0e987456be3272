"""`drawbar webhook`: the daemon that checks opaque parameters when they are written."""

from drawbar.driver.cli import daemon
from drawbar.driver.webhook import settings

_DAEMON = daemon.Daemon(
    settings=settings.Settings,
    problems=settings.problems,
    module="drawbar.driver.webhook.daemon",
)


COMMAND = daemon.verb(
    _DAEMON,
    "webhook",
    summary="the admission webhook: checks opaque parameters",
    description=(
        "Tells the API server over HTTPS whether the opaque parameters of a DeviceClass, ResourceClaim or\n"
        "ResourceClaimTemplate are valid. It has no permissions in the cluster and calls no server.\n"
        "Without it, the controller and the node daemon check them later."
    ),
    examples=(
        "drawbar webhook --tls-certificate tls.crt --tls-key tls.key",
        "drawbar webhook --listen-address 10.1.2.3 --listen-port 9443 --log-format json",
    ),
)
