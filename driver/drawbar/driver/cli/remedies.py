"""The remedies for errors of the API server's client, as commands if possible."""

import re

import aiohttp

from drawbar.driver.kube import errors
from drawbar.fabric import trust

_UNANSWERED = re.compile(r"^(?:GET|WATCH|POST|PATCH|PUT|DELETE) \S+ got no answer from (\S+): ")
_VIEW = "kubectl config view --minify shows the address and the authority in use"


def find_remedy(error: BaseException) -> str:
    """Return the remedy for an error, or an empty text if the error already has it."""
    if isinstance(error, errors.Unauthenticated):
        return "the credentials are unknown or expired: log in again; kubectl auth whoami shows who you are"
    if isinstance(error, errors.Denied):
        return "ask an administrator for the right; the ClusterRoles drawbar-viewer and drawbar-operator have the rights for all verbs"
    if isinstance(error, errors.Throttled):
        return "the API server is overloaded: try again in a minute"
    if isinstance(error, errors.Unreachable):
        return find_cause_remedy(error.__cause__)
    return ""


def find_cause_remedy(cause: BaseException | None) -> str:
    """Return the remedy if this error is why the API server does not answer."""
    if isinstance(cause, aiohttp.ClientConnectorCertificateError) and trust.is_out_of_date(
        cause.certificate_error
    ):
        return f"renew the API server's certificate, or correct the clock of this machine: {_VIEW}"
    if isinstance(cause, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        return f"check certificate-authority and tls-server-name of the cluster: {_VIEW}"
    if isinstance(cause, aiohttp.ClientConnectorDNSError):
        return f"check the host's name: {_VIEW}"
    if isinstance(cause, aiohttp.ClientConnectorError):
        return f"check that the API server runs there and that no firewall blocks it: {_VIEW}"
    return "try again; kubectl get --raw /readyz shows whether the API server is well"


def plain(text: str) -> str:
    """Return the message about a server that does not answer, without the request."""
    return _UNANSWERED.sub(r"\1 does not answer: ", text)


def sentence(error: errors.KubeError) -> str:
    """Return the error with its remedy."""
    remedy = find_remedy(error)
    message = plain(str(error))
    return f"{message}: {remedy}" if remedy else message
