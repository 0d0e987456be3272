"""The address of the API server and the credentials for it.

In a pod these come from the mounted service account, elsewhere from a kubeconfig. Token, token file and client certificate
are read here; logins by a program or a protocol (`exec`, `auth-provider`) are left to the `kubernetes` package, which is
large and so an extra, `drawbar[login]`. Settings that would be ignored silently (a proxy, another user) are refused.

Source: "Organizing Cluster Access Using kubeconfig Files", "Accessing the Kubernetes API from a Pod".
"""

import base64
import binascii
import os
import ssl
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from drawbar.driver.kube import errors

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
UNSUPPORTED = {"cluster": ("proxy-url", "tls-server-name"), "user": ("as", "as-uid", "as-groups")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """One way to reach one API server.

    Attributes:
        server: base URL without a trailing slash.
        tls: TLS settings for https, else None.
        authorization: returns the Authorization header or None; called for every request, since the kubelet rotates
            the token file.
        origin: the source of the settings, for messages.
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
    """Return the connection by `path`, else $KUBECONFIG, else the pod's service account, else ~/.kube/config.

    Raises:
        errors.ConfigError: there is none of them, or it cannot be used.
    """
    named = path or environ.get("KUBECONFIG")
    if named:
        if not path and os.pathsep in named:
            raise errors.ConfigError(
                f"KUBECONFIG names several files ({named}): name one with --kubeconfig FILE"
            )
        return from_kubeconfig(_expanded(named))
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return from_service_account(account, environ)
    default = _expanded("~/.kube/config")
    if default.exists():
        return from_kubeconfig(default)
    raise errors.ConfigError(
        "no API server is configured: pass --kubeconfig FILE, set KUBECONFIG, or run in a pod with a service account"
    )


def _expanded(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:
        # No home directory, as in a container without a passwd entry: the name is taken as it stands.
        return Path(name)


def from_service_account(account: Path, environ: Mapping[str, str]) -> Connection:
    """The connection of a pod."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    if ":" in host:
        host = f"[{host}]"
    token, authority = account / "token", account / "ca.crt"
    for file in (token, authority):
        if not os.access(file, os.R_OK):
            raise errors.ConfigError(f"cannot read {file}: mount a token of the service account there")
    try:
        tls = ssl.create_default_context(cafile=str(authority))
    except OSError as error:
        raise errors.ConfigError(f"{authority} holds no usable certificate: {error}") from error
    return Connection(
        server=f"https://{host}:{port}",
        tls=tls,
        authorization=_bearer_file(token),
        origin=f"service account in {account}",
    )


def from_kubeconfig(path: Path) -> Connection:
    """The connection of the current context of a kubeconfig file."""
    content = _parse(path)
    current = content.get("current-context")
    if not current:
        raise errors.ConfigError(f"kubeconfig {path} has no current-context: kubectl config use-context NAME")
    context = _named(content, "contexts", "context", current, path)
    cluster = _named(content, "clusters", "cluster", context.get("cluster"), path)
    user = _named(content, "users", "user", context.get("user"), path) if context.get("user") else {}
    for what, entry in (("cluster", cluster), ("user", user)):
        for key in UNSUPPORTED[what]:
            if entry.get(key):
                raise errors.ConfigError(f"kubeconfig {path}: {key} of a {what} is not supported: remove it")
    server = _server(cluster, path)
    if "exec" in user or "auth-provider" in user:
        return _through_library(path)
    return Connection(
        server=server,
        tls=_tls(cluster, user, path) if server.startswith("https://") else None,
        authorization=_authorization(user, path),
        origin=str(path),
    )


def _parse(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise errors.ConfigError(f"cannot read kubeconfig {path}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        # The reason would quote the file, and with it a secret.
        raise errors.ConfigError(f"kubeconfig {path} is not YAML: mend or replace the file") from error
    if not isinstance(content, dict):
        raise errors.ConfigError(f"kubeconfig {path} is empty or not a mapping: mend or replace the file")
    return content


def _named(content: dict[str, Any], listing: str, key: str, name: object, path: Path) -> dict[str, Any]:
    entries = content.get(listing)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(key), dict):
            section: dict[str, Any] = entry[key]
            return section
    raise errors.ConfigError(f"kubeconfig {path} has no {key} named {name!r} in {listing}")


def _text(entry: dict[str, Any], key: str, path: Path) -> str:
    """The value of that key, or an empty text.

    Raises:
        errors.ConfigError: it is something else than text.
    """
    value = entry.get(key)
    if value is None or isinstance(value, str):
        return value or ""
    raise errors.ConfigError(f"kubeconfig {path}: {key} is not text: put it in quotes")


def _server(cluster: dict[str, Any], path: Path) -> str:
    server = _text(cluster, "server", path).rstrip("/")
    try:
        parts = urllib.parse.urlsplit(server)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise errors.ConfigError(f"kubeconfig {path}: the cluster has no server URL (http:// or https://)")
    return server


def _tls(cluster: dict[str, Any], user: dict[str, Any], path: Path) -> ssl.SSLContext:
    with (
        _file(cluster, "certificate-authority", path) as authority,
        _file(user, "client-certificate", path) as certificate,
        _file(user, "client-key", path) as key,
    ):
        try:
            context = ssl.create_default_context(cafile=str(authority) if authority else None)
        except OSError as error:
            raise errors.ConfigError(f"kubeconfig {path}: certificate-authority is no certificate") from error
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if (certificate is None) != (key is None):
            raise errors.ConfigError(f"kubeconfig {path}: client-certificate and client-key need each other")
        if certificate and key:
            _present(context, certificate, key, path)
    return context


def _present(context: ssl.SSLContext, certificate: Path, key: Path, path: Path) -> None:
    try:
        # A password would be asked for on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except OSError as error:
        raise errors.ConfigError(
            f"kubeconfig {path}: client-certificate and client-key are unusable, do not belong together, "
            f"or the key has a password"
        ) from error


@contextmanager
def _file(entry: dict[str, Any], key: str, path: Path) -> Iterator[Path | None]:
    """The file of `key`, or a short-lived one with what stands in `key`-data, which comes first; None without both.

    Python's ssl module reads keys from files only.
    """
    data, name = _text(entry, f"{key}-data", path), _text(entry, key, path)
    if not data:
        file_path = path.parent / name if name else None
        if file_path is not None and not os.access(file_path, os.R_OK):
            raise errors.ConfigError(f"kubeconfig {path}: cannot read {key} {file_path}")
        yield file_path
        return
    try:
        raw = base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise errors.ConfigError(f"kubeconfig {path}: {key}-data is not base64") from error
    with ExitStack() as stack:
        try:
            file = stack.enter_context(tempfile.NamedTemporaryFile(prefix="drawbar-"))
            file.write(raw)
            file.flush()
        except OSError as error:
            raise errors.ConfigError(
                f"kubeconfig {path}: cannot put {key}-data into a temporary file ({error.strerror}): set TMPDIR"
            ) from error
        yield Path(file.name)


def _authorization(user: dict[str, Any], path: Path) -> Callable[[], str | None]:
    token_file, token = _text(user, "tokenFile", path), _text(user, "token", path).strip()
    if token_file:
        return _bearer_file(path.parent / token_file)
    if token:
        header = f"Bearer {_sendable(token, f'kubeconfig {path}: the token')}"
        return lambda: header
    if user.get("username") is not None:
        pair = base64.b64encode(
            f"{_text(user, 'username', path)}:{_text(user, 'password', path)}".encode()
        ).decode()
        return lambda: f"Basic {pair}"
    return lambda: None


def _bearer_file(path: Path) -> Callable[[], str | None]:
    def read() -> str | None:
        try:
            token = path.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise errors.ConfigError(f"cannot read the token file {path}: {error.strerror}") from error
        except ValueError as error:
            raise errors.ConfigError(f"the token file {path} is not text") from error
        return f"Bearer {_sendable(token, f'the token in {path}')}"

    return read


def _sendable(token: str, what: str) -> str:
    """The token, if it can stand in a header; never quoted in the message."""
    if token and token.isascii() and token.isprintable() and " " not in token:
        return token
    raise errors.ConfigError(f"{what} is empty, or holds spaces or characters that no token has")


def _through_library(path: Path) -> Connection:
    try:
        from kubernetes import client, config
    except ImportError as error:
        raise errors.ConfigError(
            f"kubeconfig {path} names a program or a provider to log in with, which takes another package: "
            "pip install 'drawbar[login]', or use a kubeconfig with a token or a client certificate"
        ) from error
    settings = client.Configuration()
    try:
        config.load_kube_config(  # type: ignore[no-untyped-call] # the package is partly typed
            config_file=str(path), client_configuration=settings
        )
        context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
        if settings.cert_file:
            context.load_cert_chain(settings.cert_file, settings.key_file, password="")
    # The package lets the errors of its own reading through: a section of the wrong type, bad base64.
    except (config.ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise errors.ConfigError(
            f"kubeconfig {path} cannot be used ({type(error).__name__}): try it with kubectl"
        ) from error
    # It only logs that a program failed, and would go on without credentials.
    if not settings.cert_file and not settings.api_key:
        raise errors.ConfigError(
            f"kubeconfig {path} cannot be used (the login gave no credentials): try it with kubectl"
        )
    if not settings.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return Connection(
        server=str(settings.host).rstrip("/"),
        tls=context,
        authorization=lambda: settings.get_api_key_with_prefix("BearerToken", alias="authorization"),
        origin=str(path),
    )
