"""The settings of the webhook, checked as a whole.

How it is read from file, environment and flags is `drawbar.driver.configuration`'s business.
"""

from dataclasses import dataclass, field
from pathlib import Path

from drawbar.driver import logs
from drawbar.driver.api import drivers
from drawbar.driver.configuration import schema
from drawbar.driver.operation import address

PORT = 9443
# Where the chart mounts a Secret of the type kubernetes.io/tls.
TLS = Path("/run/drawbar/tls")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """The address for the API server.

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
    """The certificate. Changed files are read again.

    Attributes:
        certificate: PEM file with the certificate and its intermediates.
        key: PEM file with the private key.
    """

    certificate: Path = TLS / "tls.crt"
    key: Path = TLS / "tls.key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The webhook's configuration.

    Attributes:
        driver: the DRA driver's name.
        listen: where the API server finds it.
        tls: its certificate.
        log: the log on stderr.
    """

    driver: str = field(
        default=drivers.DEFAULT,
        metadata=schema.name_setting(key="driverName", flag="--driver-name", metavar="NAME"),
    )
    listen: Listen = field(default_factory=Listen)
    tls: Tls = field(default_factory=Tls)
    log: logs.Options = field(default_factory=logs.Options)


def problems(settings: Settings) -> list[str]:
    """Return one sentence for each wrong value."""
    return [
        *drivers.problems(settings.driver),
        *address.find_listen_problems(settings.listen.address, settings.listen.port),
    ]
