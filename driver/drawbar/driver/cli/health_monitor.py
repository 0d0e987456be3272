"""`drawbar health-monitor`: the daemon that taints devices by the reports of others."""

from drawbar.driver.cli import daemon
from drawbar.driver.healthmonitor import settings
from drawbar.driver.operation import address

COMMAND = daemon.verb(
    daemon.Daemon(
        settings=settings.Settings,
        problems=settings.problems,
        module="drawbar.driver.healthmonitor.daemon",
        probes=daemon.Probes(
            endpoint=lambda options: address.parse(options.http.address), located_by="--http-address"
        ),
    ),
    "health-monitor",
    summary="taints devices by alerts, Redfish events and a command, as HealthPolicies say",
    description=(
        "Takes alerts of Alertmanager and events of Redfish services over HTTPS, and runs a command of yours. Creates and deletes\n"
        "DeviceTaintRules by the cluster's HealthPolicies. One runs for each driver."
    ),
    examples=(
        "drawbar health-monitor --token-file token --tls-certificate tls.crt --tls-key tls.key",
        "drawbar health-monitor --tls-client-authority ca.crt --dry-run",
        "drawbar health-monitor --token-file token --command-path /opt/health/devices --command-interval 60",
    ),
)
