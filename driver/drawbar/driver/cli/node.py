"""`drawbar node`: the kubelet plugin of one node."""

from drawbar.driver.cli import daemon
from drawbar.driver.node import settings

_DAEMON = daemon.Daemon(
    settings=settings.Settings,
    problems=settings.problems,
    module="drawbar.driver.node.daemon",
    probes=daemon.Probes(
        endpoint=lambda options: settings.parse_endpoint(
            options.http.address, options.data_dir, options.instance
        ),
        located_by="--http-address, --kubelet-dir, --driver-name and --pod-uid",
    ),
    huge_pages=False,
)


COMMAND = daemon.verb(
    _DAEMON,
    "node",
    summary="the daemon of one node: hot-plug, kubelet plugin",
    description=(
        "The daemon of one node: follows hot-plugged devices, reports them, and prepares them for containers.\n"
        "Set each setting in the file of --config (--print-config shows its keys), in the environment (the flag in\n"
        "capitals: DRAWBAR_KUBELET_DIR), or by a flag. Flags win over the environment, and that over the file."
    ),
    examples=(
        "drawbar node --node-name worker-1 --kubeconfig ~/.kube/config",
        "drawbar node --config /etc/drawbar/node.yaml --log-format json",
        "drawbar node --config /etc/drawbar/node.yaml --print-config",
        "drawbar node --check alive",
    ),
)
