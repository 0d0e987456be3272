"""Failed exchanges with a Redfish service, as errors of the contract; no class of the HTTP library leaves here."""

from dataclasses import dataclass

import aiohttp
import yarl

from drawbar.fabric import errors, judgement, trust
from drawbar.fabric.redfish import decoding, documents

MALFORMED = "MALFORMED_ANSWER"
BROKEN_OFF = "BROKEN_OFF"
NO_ANSWER = "NO_ANSWER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request, as far as its failure is concerned.

    Attributes:
        what: the request, for people, such as "to read /redfish/v1".
        base: the configured address of the service.
        changes: whether it may have changed something.
        is_proven: whether the service has shown that it is one of Redfish.
        timeout_seconds: the deadline of one request.
        answers: the number of earlier answers.
    """

    what: str
    base: yarl.URL
    changes: bool
    is_proven: bool
    timeout_seconds: float = 0.0
    answers: int = 0


def build_malformed(exchange: Exchange, did: str) -> errors.Unavailable:
    """Return the error of an answer that breaks the rules of Redfish.

    Args:
        exchange: the request.
        did: the answer, in a clause, such as "answered with the status 299".
    """
    return errors.Unavailable(
        f"the Redfish service at {exchange.base.host} was asked {exchange.what} and {did}; look at the endpoint and the service",
        reason=MALFORMED,
        side_effects_unknown=exchange.changes,
    )


def find_scheme_remedy(exchange: Exchange) -> str:
    """Return the remedy for a TLS port that is used without TLS; empty once the service has answered."""
    is_possible = exchange.base.scheme == "http" and not exchange.is_proven
    return "; if this port speaks TLS, put https:// into spec.endpoint" if is_possible else ""


def find_status_remedy(exchange: Exchange, status: int) -> str:
    """Return the remedy for a first answer that is a refusal with this status; else an empty one."""
    if status == 404 and not exchange.is_proven:
        return "; there is no Redfish service at this address: look at spec.endpoint"
    return find_scheme_remedy(exchange) if status == 400 else ""


def translate(error: Exception, exchange: Exchange) -> errors.FabricError:
    """Return the error of the contract for an exception of an exchange."""
    match error:
        case errors.FabricError():
            return judgement.unknown(error) if exchange.changes else error
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
            return _explain_tls(error, exchange.base)
        case aiohttp.ClientConnectorError():
            return errors.Unavailable(f"{exchange.base.host} cannot be reached ({_cause(error.os_error)})")
        case TimeoutError():
            return errors.DeadlineExceeded(
                f"the Redfish service was asked {exchange.what} and did not answer within {exchange.timeout_seconds:g} s, "
                f"after {exchange.answers} other answers; raise spec.timeoutSeconds, or look at the service",
                side_effects_unknown=exchange.changes,
            )
        case _:
            return _explain_breach(error, exchange)


def _explain_tls(
    error: aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError, base: yarl.URL
) -> errors.Unavailable:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        if trust.is_out_of_date(error.certificate_error):
            remedy = f"renew it at {base.host}, or correct the clock that is wrong"
        else:
            remedy = "put the authority that signed it into the Fabric's Secret, or the name in it into `tls.serverName`"
        return errors.Unavailable(
            f"the certificate of {base.host} is not trusted ({_cause(error.certificate_error)}); {remedy}",
            reason="CERTIFICATE_REFUSED",
        )
    if getattr(error.os_error, "reason", "") == "WRONG_VERSION_NUMBER":
        text = f"{base.host} speaks no TLS on port {base.port}; put http:// into spec.endpoint, or the port of its TLS"
    else:
        text = f"no TLS with {base.host} ({_cause(error.os_error)}); look at the endpoint and at the client certificate"
    return errors.Unavailable(text, reason="TLS_REFUSED")


def _explain_breach(error: Exception, exchange: Exchange) -> errors.Unavailable:
    """Return the error of an exchange that broke off."""
    if exchange.base.scheme == "https" and not exchange.is_proven:
        # The library does not show the alert by which a server asks for a certificate (RFC 8446, section 6.2).
        return errors.Unavailable(
            f"{exchange.base.host} ended the first connection without an answer; where it asks for a client certificate, put "
            f"one that it accepts into the Fabric's Secret",
            reason="TLS_REFUSED",
        )
    return errors.Unavailable(
        f"the Redfish service broke off {exchange.what}: {_breach(error)}{find_scheme_remedy(exchange)}",
        reason=BROKEN_OFF,
        side_effects_unknown=exchange.changes,
    )


def _breach(error: Exception) -> str:
    """Return why an exchange broke off, in a clause."""
    # A change has another error in its place, so that the library does not repeat it.
    if isinstance(error, aiohttp.ServerDisconnectedError) or isinstance(
        error.__cause__, aiohttp.ServerDisconnectedError
    ):
        return "it closed the connection without an answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "its answer is not complete"
    if isinstance(error, decoding.Damaged):
        return "its compressed answer is damaged"
    if isinstance(error, OSError) and error.strerror:
        return errors.cut(error.strerror, documents.TEXT_BYTES)
    return "its answer is no HTTP"


def _cause(error: Exception | None) -> str:
    reason = getattr(error, "verify_message", "") or getattr(error, "strerror", "") or type(error).__name__
    return errors.cut(str(reason), documents.TEXT_BYTES)
