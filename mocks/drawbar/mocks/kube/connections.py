"""The connection to an API server: that of a kubeconfig with a token or a client certificate, or that of a pod.

Logins by a program or an identity provider are not supported.
"""

import base64
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from drawbar.mocks.kube import errors

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The address and the credentials of an API server.

    Attributes:
        server: the base URL.
        tls: the TLS settings for https, else None.
        authorization: returns the Authorization header or None; called for each request, because tokens are renewed.
    """

    server: str
    tls: ssl.SSLContext | None
    authorization: Callable[[], str | None]


def load(path: str | None = None, environ: Mapping[str, str] = os.environ) -> Connection:
    """Return the connection by `path`, else by $KUBECONFIG, else by the pod's service account, else by ~/.kube/config.

    Raises:
        errors.ConfigError: there is none of them, or it cannot be used.
    """
    named = path or environ.get("KUBECONFIG")
    if named:
        return from_kubeconfig(Path(named).expanduser())
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return _from_account(ACCOUNT, environ)
    usual = Path("~/.kube/config").expanduser()
    if usual.exists():
        return from_kubeconfig(usual)
    raise errors.ConfigError(
        "no API server is configured: pass --kubeconfig FILE, set KUBECONFIG, or run in a pod with a service account"
    )


def from_kubeconfig(path: Path) -> Connection:
    """Return the connection by the current context of a file.

    Raises:
        errors.ConfigError: the file cannot be used.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        context = _find_entry(content, "context", content["current-context"])
        cluster, user = (
            _find_entry(content, "cluster", context["cluster"]),
            _find_entry(content, "user", context["user"]),
        )
        server = str(cluster["server"]).rstrip("/")
        tls = _tls(cluster, user, path.parent) if server.startswith("https:") else None
        return Connection(server=server, tls=tls, authorization=_authorization(user, path))
    except OSError as error:
        raise errors.ConfigError(f"cannot read the kubeconfig {path}: {error.strerror or error}") from error
    except (KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split())
        raise errors.ConfigError(
            f"the kubeconfig {path} is broken: {type(error).__name__} {problem}"
        ) from error


def _find_entry(content: Mapping[str, Any], what: str, name: str) -> Mapping[str, Any]:
    """Return the cluster, context or user of that name."""
    found: Mapping[str, Any] = next(entry for entry in content[f"{what}s"] if entry["name"] == name)[what]
    return found


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path) -> ssl.SSLContext:
    authority = _pem(cluster, "certificate-authority", folder).decode()
    # Without one, all authorities of the machine are read.
    context = ssl.create_default_context(cadata=authority or None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    certificate, key = _pem(user, "client-certificate", folder), _pem(user, "client-key", folder)
    if certificate and key:
        # The standard library reads client certificates only from files.
        with tempfile.NamedTemporaryFile() as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _pem(entry: Mapping[str, Any], name: str, folder: Path) -> bytes:
    if data := entry.get(f"{name}-data"):
        return base64.b64decode(data)
    return (folder / entry[name]).read_bytes() if entry.get(name) else b""


def _authorization(user: Mapping[str, Any], path: Path) -> Callable[[], str | None]:
    if user.get("exec") or user.get("auth-provider"):
        raise errors.ConfigError(
            f"the kubeconfig {path} needs a login: use one with a token, as from kubectl create token, or with a certificate"
        )
    if user.get("tokenFile"):
        return lambda: _bearer(path.parent / user["tokenFile"])
    token = user.get("token")
    return lambda: f"Bearer {token}" if token else None


def _bearer(file: Path) -> str:
    try:
        return f"Bearer {file.read_text(encoding='ascii').strip()}"
    except (OSError, ValueError) as error:
        raise errors.ConfigError(f"cannot read the token in {file}: mount a token there") from error


def _from_account(account: Path, environ: Mapping[str, str]) -> Connection:
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
    except OSError as error:
        raise errors.ConfigError(
            f"cannot read {account}: mount a token of the service account there"
        ) from error
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Connection(server=server, tls=tls, authorization=lambda: _bearer(account / "token"))
