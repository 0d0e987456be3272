"""Where the API server is and how to prove who we are.

In a pod this is the mounted service account; elsewhere a kubeconfig. Credentials that stand in the kubeconfig
(token, token file, client certificate) are read here, because importing the `kubernetes` package costs a daemon
40 MB of memory; what needs a program or a protocol to log in (`exec`, `auth-provider`) is left to that package.

Source: "Organizing Cluster Access Using kubeconfig Files", "Accessing the Kubernetes API from a Pod".
"""

import base64
import binascii
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from drawbar.driver.kube import errors

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """One way to reach one API server.

    Attributes:
        server: base URL without a trailing slash.
        tls: TLS settings for https, else None.
        authorization: gives the value of the Authorization header, or None. Called for every request, since the
            kubelet rotates the token file under us.
        origin: where this came from, for messages.
    """

    server: str
    tls: ssl.SSLContext | None
    authorization: Callable[[], str | None]
    origin: str

    def __repr__(self) -> str:
        return f"Connection(server={self.server!r}, origin={self.origin!r})"


def load(
    path: str | None = None, *, environ: Mapping[str, str] = os.environ, account: Path = SERVICE_ACCOUNT
) -> Connection:
    """The connection asked for: `path`, else $KUBECONFIG, else the pod's service account, else ~/.kube/config.

    Raises:
        errors.ConfigError: none of them is there, or the one found cannot be used.
    """
    named = path or environ.get("KUBECONFIG")
    if named:
        return from_kubeconfig(Path(named).expanduser())
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return from_service_account(account, environ)
    default = Path.home() / ".kube" / "config"
    if default.exists():
        return from_kubeconfig(default)
    raise errors.ConfigError(
        "no API server is configured: pass --kubeconfig FILE, set KUBECONFIG, or run in a pod with a service account"
    )


def from_service_account(account: Path, environ: Mapping[str, str]) -> Connection:
    """The connection of a pod."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    if ":" in host:
        host = f"[{host}]"
    token, authority = account / "token", account / "ca.crt"
    for file in (token, authority):
        if not os.access(file, os.R_OK):
            raise errors.ConfigError(
                f"cannot read {file}: mount the service account token (automountServiceAccountToken: true)"
            )
    return Connection(
        server=f"https://{host}:{port}",
        tls=ssl.create_default_context(cafile=str(authority)),
        authorization=_bearer_file(token),
        origin=f"service account in {account}",
    )


def from_kubeconfig(path: Path) -> Connection:
    """The connection of the current context of a kubeconfig file."""
    content = _parse(path)
    context = _named(content, "contexts", "context", content.get("current-context"), path)
    cluster = _named(content, "clusters", "cluster", context.get("cluster"), path)
    user = _named(content, "users", "user", context.get("user"), path) if context.get("user") else {}
    if "exec" in user or "auth-provider" in user:
        return _through_library(path)
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("http://", "https://")):
        raise errors.ConfigError(f"{path}: the cluster has no server URL (http:// or https://)")
    return Connection(
        server=server.rstrip("/"),
        tls=_tls(cluster, user, path) if server.startswith("https://") else None,
        authorization=_authorization(user, path),
        origin=str(path),
    )


def _parse(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise errors.ConfigError(f"cannot read kubeconfig {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise errors.ConfigError(f"kubeconfig {path} is not YAML: mend or replace the file") from error
    if not isinstance(content, dict):
        raise errors.ConfigError(f"kubeconfig {path} is empty or not a mapping: mend or replace the file")
    return content


def _named(content: dict[str, Any], listing: str, key: str, name: object, path: Path) -> dict[str, Any]:
    for entry in content.get(listing) or ():
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(key), dict):
            found: dict[str, Any] = entry[key]
            return found
    raise errors.ConfigError(f"kubeconfig {path} has no {key} named {name!r} in {listing}")


def _tls(cluster: dict[str, Any], user: dict[str, Any], path: Path) -> ssl.SSLContext:
    try:
        authority = _data(cluster, "certificate-authority-data")
        file = cluster.get("certificate-authority")
        context = ssl.create_default_context(
            cafile=str(path.parent / file) if file and authority is None else None,
            cadata=authority.decode() if authority is not None else None,
        )
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate, key = user.get("client-certificate"), user.get("client-key")
        if "client-certificate-data" in user or "client-key-data" in user:
            return _through_library(path).tls or context
        if certificate and key:
            context.load_cert_chain(path.parent / certificate, path.parent / key)
    except (OSError, ValueError, binascii.Error) as error:
        raise errors.ConfigError(f"kubeconfig {path} has an unusable certificate or key: {error}") from error
    return context


def _data(entry: dict[str, Any], key: str) -> bytes | None:
    value = entry.get(key)
    return base64.b64decode(value, validate=True) if value else None


def _authorization(user: dict[str, Any], path: Path) -> Callable[[], str | None]:
    if user.get("tokenFile"):
        return _bearer_file(path.parent / user["tokenFile"])
    if user.get("token"):
        header = f"Bearer {user['token']}"
        return lambda: header
    if user.get("username") is not None:
        pair = base64.b64encode(f"{user['username']}:{user.get('password', '')}".encode()).decode()
        return lambda: f"Basic {pair}"
    return lambda: None


def _bearer_file(path: Path) -> Callable[[], str | None]:
    def read() -> str | None:
        try:
            return f"Bearer {path.read_text(encoding='ascii').strip()}"
        except OSError as error:
            raise errors.ConfigError(f"cannot read the token file {path}: {error.strerror}") from error

    return read


def _through_library(path: Path) -> Connection:
    from kubernetes import client, config

    settings = client.Configuration()
    try:
        config.load_kube_config(  # type: ignore[no-untyped-call] # the package is partly typed
            config_file=str(path), client_configuration=settings
        )
    except (config.ConfigException, OSError) as error:
        raise errors.ConfigError(f"kubeconfig {path} cannot be used: {error}") from error
    context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
    if not settings.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.cert_file:
        context.load_cert_chain(settings.cert_file, settings.key_file)
    return Connection(
        server=str(settings.host).rstrip("/"),
        tls=context,
        authorization=lambda: settings.get_api_key_with_prefix("BearerToken", alias="authorization"),
        origin=str(path),
    )
