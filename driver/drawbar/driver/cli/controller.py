"""`drawbar controller`: the daemon that publishes the fabrics' devices and attaches the devices of claims."""

from drawbar.driver.cli import daemon
from drawbar.driver.controller import settings
from drawbar.driver.operation import address

_DAEMON = daemon.Daemon(
    settings=settings.Settings,
    problems=settings.problems,
    module="drawbar.driver.controller.daemon",
    probes=daemon.Probes(
        endpoint=lambda options: address.parse(options.http.address), located_by="--http-address"
    ),
)


COMMAND = daemon.verb(
    _DAEMON,
    "controller",
    summary="the daemon of the cluster: pools, attach and detach",
    description=(
        "The daemon of the cluster: publishes the devices of all fabrics, and attaches and detaches them for claims.\n"
        "Several may run; one of them leads.\n"
        "Set each setting in the file of --config (--print-config shows its keys), in the environment (the flag in\n"
        "capitals: DRAWBAR_BINDING_TIMEOUT), or by a flag. Flags win over the environment, and that over the file."
    ),
    examples=(
        "drawbar controller --kubeconfig ~/.kube/config",
        "drawbar controller --binding-timeout 1200 --log-format json",
        "drawbar controller --config /etc/drawbar/controller.yaml --print-config",
        "drawbar controller --check alive",
    ),
)
