"""`drawbar controller`: the daemon that publishes the fabrics' devices and attaches the devices of claims."""

from drawbar.driver.cli import daemon
from drawbar.driver.controller import settings

_DAEMON = daemon.Daemon(
    settings=settings.Settings,
    problems=settings.problems,
    module="drawbar.driver.controller.daemon",
    probes=daemon.Probes(
        problems=settings.http_problems, endpoint=settings.endpoint, located_by="--http-address"
    ),
)


COMMAND = daemon.verb(
    _DAEMON,
    "controller",
    summary="the daemon of the cluster: pools, attach and detach",
    description=(
        "The daemon of the cluster: publishes the devices of all fabrics, attaches what claims were given, detaches\n"
        "what they let go of. Several may run; one of them leads.\n"
        "Every setting can stand in the file of --config (see --print-config for its keys), in the environment\n"
        "(the flag in capitals: DRAWBAR_BINDING_TIMEOUT), or be a flag; flags win over the environment, and that\n"
        "over the file."
    ),
    examples=(
        "drawbar controller --kubeconfig ~/.kube/config",
        "drawbar controller --binding-timeout 1200 --log-format json",
        "drawbar controller --config /etc/drawbar/controller.yaml --print-config",
        "drawbar controller --check alive",
    ),
)
