"""Mutual TLS between the adapter and a plugin that is reached over the network."""

from dataclasses import dataclass
from pathlib import Path

import grpc

from drawbar.fabric import contract, errors


def problems(credentials: contract.Credentials, tls: contract.Tls) -> tuple[str, ...]:
    """Return one sentence for each missing or wrong part of a connection over the network."""
    needed = {"ca.crt": credentials.authority, "tls.crt": credentials.certificate, "tls.key": credentials.key}
    wrong = []
    if missing := [name for name, content in needed.items() if not content]:
        wrong.append(
            f"the plugin and this adapter show each other certificates, and the Secret has no {', '.join(missing)}; "
            f"give ca.crt, tls.crt and tls.key"
        )
    if not tls.verify:
        wrong.append(
            "the certificate of a plugin is always verified; put its authority into ca.crt and leave tls.verify out"
        )
    return tuple(wrong)


def channel(credentials: contract.Credentials) -> grpc.ChannelCredentials:
    """Return the adapter's certificate and trusted authorities for gRPC."""
    return grpc.ssl_channel_credentials(
        credentials.authority.encode(), credentials.key.encode(), credentials.certificate.encode()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFiles:
    """The PEM files of a plugin, which may be renewed while it serves.

    Attributes:
        certificate: its own, with the chain.
        key: of the certificate, without a password.
        authority: the issuer of the adapter's certificate.
    """

    certificate: Path
    key: Path
    authority: Path

    def credentials(self) -> grpc.ServerCredentials:
        """Return the plugin's certificate and trusted authority for gRPC.

        The files are read again for each connection.

        Raises:
            InvalidConfiguration: a file cannot be read.
        """

        def read_renewed() -> grpc.ServerCertificateConfiguration | None:
            try:
                return self._read()
            except OSError:
                # A file is being replaced, so the previous certificates stay.
                return None

        try:
            first = self._read()
        except OSError as error:
            raise errors.InvalidConfiguration(
                [f"{error.filename} cannot be read ({error.strerror}); give the PEM files of the plugin"]
            ) from error
        return grpc.dynamic_ssl_server_credentials(
            first,
            read_renewed,  # type: ignore[arg-type] # None is "as before", says its documentation and not its type
            require_client_authentication=True,
        )

    def _read(self) -> grpc.ServerCertificateConfiguration:
        pair = self.key.read_bytes(), self.certificate.read_bytes()
        return grpc.ssl_server_certificate_configuration([pair], self.authority.read_bytes())
