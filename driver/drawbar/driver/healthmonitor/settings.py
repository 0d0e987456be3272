"""The configuration of the health monitor, checked as a whole.

How it is read from file, environment and flags is `drawbar.driver.configuration`'s business.
"""

import socket
from dataclasses import dataclass, field
from pathlib import Path

from drawbar.driver import logs
from drawbar.driver.api import drivers
from drawbar.driver.configuration import schema
from drawbar.driver.operation import address

PORT = 9444
HTTP_ADDRESS = "127.0.0.1:9181"
# Where the chart mounts a Secret of the type kubernetes.io/tls.
TLS = Path("/run/drawbar/tls")
INTERVAL_MAX_SECONDS = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """The address for alerts and events.

    Attributes:
        address: an IP address of this host; in a pod its own.
        port: 0 takes any that is free.
    """

    address: str = field(
        default="127.0.0.1", metadata=schema.name_setting(variables=("POD_IP",), metavar="IP")
    )
    port: int = PORT


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The certificate, and the clients' authority. Changed files are read again.

    Attributes:
        certificate: PEM file with the certificate and its intermediates.
        key: PEM file with the private key.
        client_authority: PEM file of the clients' authority; none asks for no certificate.
    """

    certificate: Path = TLS / "tls.crt"
    key: Path = TLS / "tls.key"
    client_authority: Path | None = field(default=None, metadata=schema.name_setting(metavar="FILE"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Your program that lists faults.

    Attributes:
        path: the program to run, without arguments.
        interval_seconds: the pause between two runs.
        timeout_seconds: the longest time of a run.
    """

    path: Path | None = field(default=None, metadata=schema.name_setting(metavar="FILE"))
    interval_seconds: float = 60.0
    timeout_seconds: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    """Probes and metrics.

    Attributes:
        address: 127.0.0.1:PORT, unix:/path, or off.
    """

    address: str = HTTP_ADDRESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The health monitor's configuration.

    Attributes:
        driver: the DRA driver's name.
        kubeconfig: access to the API server; else $KUBECONFIG, or the pod's service account.
        token_file: file with the clients' bearer token; none only with a client authority.
        dry_run: only report, even if a policy says otherwise.
        identity: the name in Events; none: the host's name.
        listen: where alerts and events are sent to.
        tls: its certificate.
        command: a program that lists problems of devices.
        log: the log on stderr.
        http: probes and metrics.
    """

    driver: str = field(
        default=drivers.DEFAULT,
        metadata=schema.name_setting(key="driverName", flag="--driver-name", metavar="NAME"),
    )
    kubeconfig: str | None = field(default=None, metadata=schema.name_setting(metavar="FILE"))
    token_file: Path | None = field(default=None, metadata=schema.name_setting(metavar="FILE"))
    dry_run: bool = False
    identity: str = field(default="", metadata=schema.name_setting(metavar="NAME", variables=("POD_NAME",)))
    listen: Listen = field(default_factory=Listen)
    tls: Tls = field(default_factory=Tls)
    command: Command = field(default_factory=Command)
    log: logs.Options = field(default_factory=logs.Options)
    http: Http = field(default_factory=Http)

    @property
    def instance(self) -> str:
        """Return this monitor's name in Events."""
        return self.identity or socket.gethostname()


def problems(settings: Settings) -> list[str]:
    """Return one sentence per wrong value."""
    sentences = drivers.problems(settings.driver)
    sentences += address.find_listen_problems(settings.listen.address, settings.listen.port)
    if settings.token_file is None and settings.tls.client_authority is None:
        sentences.append(
            "anyone could send alerts: give --token-file, or --tls-client-authority, or both to ask for both"
        )
    command = settings.command
    if command.path is not None and not command.path.is_absolute():
        sentences.append(f"--command-path {str(command.path)!r} is not an absolute path")
    for flag, seconds in (
        ("--command-interval", command.interval_seconds),
        ("--command-timeout", command.timeout_seconds),
    ):
        # Written so that it holds for no NaN.
        if not 1 <= seconds <= INTERVAL_MAX_SECONDS:
            sentences.append(f"{flag} {seconds} is not a number of seconds from 1 to {INTERVAL_MAX_SECONDS}")
    return sentences + address.find_problems(settings.http.address)
