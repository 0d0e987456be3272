"""The configured connection to the API server: a kubeconfig's, or that of a pod's service account.

A pod never imports `kubeconfig`, which costs a daemon 18 MB.

Source: "Organizing Cluster Access Using kubeconfig Files", "Accessing the Kubernetes API from a Pod".
"""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path

import msgspec

from drawbar.driver.kube import errors, sessions
from drawbar.fabric import trust

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def load(
    path: str | None = None,
    *,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
    account: Path = SERVICE_ACCOUNT,
) -> sessions.Connection:
    """Return the connection by `path`, else $KUBECONFIG, else the pod's service account, else ~/.kube/config.

    Args:
        path: one file; a colon is part of its name.
        context: name of a context, in place of the files' current one.
        environ: environment variables.
        account: folder of the service account.

    Raises:
        errors.ConfigError: there is none of them, or it cannot be used.
    """
    if path:
        return from_kubeconfig(_expand(path), context=context)
    named = [_expand(name) for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    if named:
        # Files that do not exist are skipped, as in kubectl.
        existing = [file for file in named if file.exists()]
        return from_kubeconfig(*(existing or named), context=context)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return from_service_account(account, environ)
    default = _expand("~/.kube/config")
    if default.exists():
        return from_kubeconfig(default, context=context)
    raise errors.ConfigError(
        "no API server is configured: pass --kubeconfig FILE, set KUBECONFIG, or run in a pod with a service account"
    )


def _expand(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:
        # Without a home directory, as in a container without a passwd entry, the name stays unchanged.
        return Path(name)


def from_kubeconfig(*paths: Path, context: str | None = None) -> sessions.Connection:
    """Return the connection by the kubeconfig files, of which the first wins; the context is the current one by default.

    Raises:
        errors.ConfigError: they cannot be used, or the login failed.
    """
    from drawbar.driver.kube import kubeconfig

    return kubeconfig.connect(paths, context)


def from_service_account(account: Path, environ: Mapping[str, str]) -> sessions.Connection:
    """Return the connection of a pod."""
    token = account / "token"
    _check_readable(token, "mount a token of the service account there")
    return msgspec.structs.replace(
        anonymous(account, environ),
        authorization=lambda: sessions.read_bearer(token),
        origin=f"service account in {account}",
    )


def anonymous(account: Path, environ: Mapping[str, str]) -> sessions.Connection:
    """Return the connection of a pod without its token: to the API server, by the authority in `account`.

    Raises:
        errors.ConfigError: this is no pod, or it has no authority.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise errors.ConfigError("KUBERNETES_SERVICE_HOST is not set: run this in a pod of the cluster")
    if ":" in host:
        host = f"[{host}]"
    authority = account / "ca.crt"
    _check_readable(
        authority, "mount a token of the service account there, or the ConfigMap kube-root-ca.crt"
    )
    try:
        tls = ssl.create_default_context(cafile=str(authority))
    except OSError as error:
        raise errors.ConfigError(f"{authority} holds no usable certificate: {error}") from error
    trust.verify_as_go(tls)
    return sessions.Connection(
        server=f"https://{host}:{port}", tls=tls, authorization=lambda: None, origin=f"authority in {account}"
    )


def _check_readable(file: Path, remedy: str) -> None:
    if not os.access(file, os.R_OK):
        raise errors.ConfigError(f"cannot read {file}: {remedy}")
