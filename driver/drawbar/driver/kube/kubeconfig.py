"""The login by a kubeconfig.

The `kubernetes` package picks the context, reads certificates and passwords, and refreshes OIDC tokens. This module adds
features that version 37 lacks:

- kubectl's rules: a user's paths are relative to the user's file, `tokenFile` is read again and may stand beside `token`,
  a server may have no scheme, a context's user must exist; impersonation; the proxy of the environment.
- Bounds of time, and errors of one sentence: the package waits without end, quotes users with their tokens, logs a failed
  login and goes on without. Credential plugins are in `credential_plugins`, files in `kubeconfig_files`.
- The verification of an identity provider whose authority is not named.

Importing the package takes 18 MB and 0.2 s, so only readers of a kubeconfig import this module.

Source: "Organizing Cluster Access Using kubeconfig Files"; client-go, tools/clientcmd.
"""

import concurrent.futures
import datetime
import os
import re
import ssl
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import urllib3.exceptions
from kubernetes import client
from kubernetes.client import rest
from kubernetes.config import ConfigException, kube_config
from oauthlib import oauth2

from drawbar.driver import output
from drawbar.driver.api import meta
from drawbar.driver.kube import credential_plugins, errors, kubeconfig_files, sessions
from drawbar.fabric import trust

RENEWAL_SHARE = 0.8
"""The share of a credential's lifetime after which the next one is fetched."""
RENEWAL_PAUSE_SECONDS = 5.0
MARGIN_SECONDS = 2.0
"""A credential plugin is ended within it, and its name is in the message."""
PROVIDER_PAUSE_SECONDS = 60.0
"""The time between two looks whether an identity provider's token ends."""
PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")
# The package demands a configuration of OIDC that kubectl does not: here a token that has expired.
OIDC_DEFAULTS = {"client-secret": "", "id-token": "e30.eyJleHAiOjB9.e30"}
_PLUGIN_EXTENSION = "client.authentication.k8s.io/exec"

T = TypeVar("T")


def connect(
    paths: Sequence[Path], context: str | None = None, *, limit_seconds: float | None = None
) -> sessions.Connection:
    """Return the connection by these files, of which the first wins, after the login.

    Args:
        paths: the files.
        context: its name, in place of the current one.
        limit_seconds: the longest time of each login, by default longer if a person at a terminal may take part.

    Raises:
        errors.ConfigError: they cannot be used, or the login failed.
    """
    origin = os.pathsep.join(map(str, paths))
    limit = limit_seconds or (
        credential_plugins.INTERACTIVE_SECONDS
        if credential_plugins.has_terminal()
        else credential_plugins.SECONDS
    )

    def prepare() -> sessions.Connection:
        with _explaining(origin):
            return _Login(kubeconfig_files.Files(paths), context, origin, limit).connection()

    return _run_within(limit, prepare, origin)


class _Login(kube_config.KubeConfigLoader):  # type: ignore[misc] # the package is partly typed
    """The login of one context's user, which is repeated when its credential ends."""

    def __init__(
        self, files: kubeconfig_files.Files, context: str | None, origin: str, limit_seconds: float
    ) -> None:
        if context is None and "current-context" not in files.config.value:
            raise errors.ConfigError("it has no current-context: kubectl config use-context NAME")
        known = sorted(str(node.value["name"]) for node in files.config.value["contexts"])
        if context is not None and context not in known:
            raise errors.ConfigError(
                f"there is no context {context!r}, but {', '.join(known) or 'none'}: kubectl config get-contexts"
            )
        super().__init__(files.config, context, config_base_path=None, config_persister=files.save_changes)
        self._origin = origin
        self._limit_seconds = limit_seconds
        self._lock = threading.Lock()
        self._token_path: Path | None = None
        self._header: str | None = None
        self._renewal = self._ends = float("inf")
        self._context = kubeconfig_files.convert(
            self._current_context["context"].value, kubeconfig_files.Context
        )
        self._server = kubeconfig_files.convert(self._cluster.value, kubeconfig_files.Cluster)
        if self._context.user and self._user is None:
            raise errors.ConfigError(f"there is no user named {self._context.user!r} in users")
        self._account = kubeconfig_files.convert(
            self._user.value if self._user else {}, kubeconfig_files.User
        )
        self._url = self._address()
        self._tls = _Tls(ssl.PROTOCOL_TLS_CLIENT) if self._url.startswith("https:") else None
        # Copies, so that no file is changed by them.
        self._cluster.value = self._cluster.value | {"server": self._url}
        if self._user:
            self._user.value = self._user.value | {
                key: str(Path(self._user.path).parent / value)
                for key in ("client-certificate", "client-key")
                if (value := self._user.value.get(key))
            }

    def connection(self) -> sessions.Connection:
        """Log in and return the connection."""
        identity = _impersonation(self._account)
        settings = self._enter()
        return sessions.Connection(
            server=self._url,
            tls=self._tls,
            authorization=self._authorization,
            origin=self._origin,
            may_block=bool(self._account.exec or self._account.auth_provider),
            refused=self._forget,
            impersonation=identity,
            proxy=_proxy(self._server.proxy_url, settings),
            namespace=self._context.namespace,
        )

    def _address(self) -> str:
        cluster, server = self._server, self._server.server
        if "://" not in server:
            is_secured = cluster.certificate_authority or cluster.certificate_authority_data
            server = f"{'https' if is_secured or cluster.insecure_skip_tls_verify else 'http'}://{server}"
        if not _is_url(server, ("http", "https")):
            raise errors.ConfigError("the cluster has no server URL (http:// or https://)")
        return server.rstrip("/")

    def _enter(self) -> client.Configuration:
        """Log in; keep the header and the certificate."""
        for name in ("token", "expiry", "cert_file", "key_file"):
            self.__dict__.pop(name, None)
        settings = client.Configuration()
        with tempfile.TemporaryDirectory(prefix="drawbar-") as self._temp_file_path:
            self.load_and_set(settings)
            if self._tls is not None:
                self._tls.configure(settings)
        header = settings.api_key.get("BearerToken")
        if header and header.startswith("Bearer "):
            header = "Bearer " + sessions.sendable(header.removeprefix("Bearer ").strip(), "the token")
        provider = self._account.auth_provider
        if provider and not header:
            raise errors.ConfigError(
                f"the login by the auth-provider {provider.name} gave no token: log in again by its own program, "
                "or use a credential plugin (exec), as kubectl does since 1.26"
            )
        self._header = header
        self._schedule()
        return settings

    def _schedule(self) -> None:
        now = time.monotonic()
        self._renewal = self._ends = float("inf")
        if self._account.auth_provider:
            self._renewal = now + PROVIDER_PAUSE_SECONDS
        elif expiry := self.__dict__.get("expiry"):
            lifetime = (expiry - datetime.datetime.now(datetime.UTC)).total_seconds()
            self._renewal = now + max(RENEWAL_SHARE * lifetime, RENEWAL_PAUSE_SECONDS)
            self._ends = now + lifetime

    def _authorization(self) -> str | None:
        """Return the header, of a new login if the last one ends soon.

        Raises:
            errors.Unreachable: the login failed, and the last one is over.
        """
        if self._token_path:
            return sessions.read_bearer(self._token_path)
        with self._lock:
            if time.monotonic() >= self._renewal:
                self._renewal = time.monotonic() + RENEWAL_PAUSE_SECONDS
                self._renew()
            return self._header

    def _renew(self) -> None:
        def enter() -> None:
            with _explaining(self._origin):
                self._enter()

        try:
            _run_within(self._limit_seconds, enter, self._origin)
        except errors.ConfigError as error:
            if time.monotonic() >= self._ends:
                raise errors.Unreachable(str(error)) from error

    def _forget(self) -> None:
        if self._account.exec:
            self._renewal = self._ends = min(self._renewal, time.monotonic())

    def _load_user_token(self) -> bool | None:
        if name := self._account.token_file:
            path = Path(self._user.path).parent / name
            if not self._account.token or os.access(path, os.R_OK):
                self._token_path = path
                return True
        return bool(super()._load_user_token())

    def _load_from_exec_plugin(self) -> bool | None:
        plugin = self._account.exec
        if plugin is None:
            return None
        credential = credential_plugins.run(
            plugin,
            Path(self._user.path).parent,
            self._cluster_of_plugin(),
            limit_seconds=self._limit_seconds,
        )
        if credential.token:
            self.token = f"Bearer {credential.token}"
        if credential.client_certificate_data and credential.client_key_data:
            self.cert_file = self._write(credential.client_certificate_data)
            self.key_file = self._write(credential.client_key_data)
        if expiry := meta.moment(credential.expiration_timestamp):
            self.expiry = expiry
        return True

    def _write(self, text: str) -> str:
        file = kube_config.FileOrData(
            {"data": text}, "", "data", base64_file_content=False, temp_file_path=self._temp_file_path
        )
        return str(file.as_file())

    def _cluster_of_plugin(self) -> dict[str, Any]:
        authority = kube_config.FileOrData(
            self._cluster, "certificate-authority", file_base_path=self._get_base_path(self._cluster.path)
        )
        options = {
            "server": self._url,
            "tls-server-name": self._server.tls_server_name,
            "insecure-skip-tls-verify": self._server.insecure_skip_tls_verify,
            "certificate-authority-data": authority.as_data(),
            "proxy-url": self._server.proxy_url,
        }
        for extension in self._server.extensions:
            if extension.name == _PLUGIN_EXTENSION:
                options["config"] = extension.extension
        return {key: value for key, value in options.items() if value}

    def _load_oid_token(self, provider: kube_config.ConfigNode) -> object:
        provider.value["config"] = config = provider.value.get("config", {})
        for key, value in OIDC_DEFAULTS.items():
            config.setdefault(key, value)
        return super()._load_oid_token(provider)

    def _refresh_oidc(self, provider: kube_config.ConfigNode) -> None:
        """Ask the provider for a token, verified by the system's authorities if the user names none."""
        config, key = provider.value["config"], "idp-certificate-authority"
        default = ssl.get_default_verify_paths().cafile
        is_added = default is not None and not {key, f"{key}-data"} & config.keys()
        if is_added:
            config[key] = default
        try:
            super()._refresh_oidc(provider)
        finally:
            if is_added:
                del config[key]


class _Tls(ssl.SSLContext):
    """TLS settings. They may name the server otherwise than its address does."""

    _server_name: str | None = None
    _has_authority = False

    def configure(self, settings: client.Configuration) -> None:
        """Take the authority, once, and the client certificate."""
        if not self._has_authority:
            self._server_name = settings.tls_server_name
            trust.verify_as_go(self)
            if not settings.verify_ssl:
                self.check_hostname = False
                self.verify_mode = ssl.CERT_NONE
            self._trust(settings.ssl_ca_cert)
            self._has_authority = True
        if bool(settings.cert_file) != bool(settings.key_file):
            raise errors.ConfigError("client-certificate and client-key need each other")
        if settings.cert_file:
            try:
                # A password would be asked for on the terminal.
                self.load_cert_chain(settings.cert_file, settings.key_file, password="")
            except OSError as error:
                raise errors.ConfigError(
                    "client-certificate and client-key are unusable, do not belong together, or the key has a password"
                ) from error

    def _trust(self, file: str | None) -> None:
        try:
            if file:
                self.load_verify_locations(file)
            else:
                self.load_default_certs()
        except OSError as error:
            raise errors.ConfigError(
                "certificate-authority is not a certificate, or cannot be read"
            ) from error

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Begin TLS, as asyncio does."""
        name = self._server_name or server_hostname
        return super().wrap_bio(incoming, outgoing, server_side, name, session)


def _impersonation(user: kubeconfig_files.User) -> tuple[tuple[str, str], ...]:
    """Return the headers that name another user."""
    extra = [
        (f"Impersonate-Extra-{urllib.parse.quote(key, safe='')}", value)
        for key, values in user.as_user_extra.items()
        for value in values
    ]
    groups = [("Impersonate-Group", group) for group in user.as_groups]
    uid = [("Impersonate-Uid", user.as_uid)] if user.as_uid else []
    if not user.as_:
        if extra or groups or uid:
            raise errors.ConfigError("its user has as-uid, as-groups or as-user-extra without as: add as")
        return ()
    headers = (("Impersonate-User", user.as_), *uid, *groups, *extra)
    if not all(value.isprintable() for _, value in headers):
        raise errors.ConfigError(
            "a value of as, as-uid, as-groups or as-user-extra cannot be sent: correct the file"
        )
    return headers


def _proxy(named: str, settings: client.Configuration) -> str | None:
    """Return the proxy of the cluster, else that of the environment, as Go understands both."""
    url = named
    if not named:
        server = urllib.parse.urlsplit(settings.host)
        # Not settings.proxy: Go and kubectl do not know ALL_PROXY.
        url = urllib.request.getproxies_environment().get(server.scheme, "")
        host = server.hostname or ""
        is_local = host in ("localhost", "::1") or host.startswith("127.")
        # To Go, *.example.com is .example.com.
        bypassed = re.sub(r"(^|[\s,])\*\.", r"\1.", settings.no_proxy or "")
        if not url or is_local or rest.should_bypass_proxies(settings.host, bypassed):
            return None
        url = url if "://" in url else f"http://{url}"
    if not _is_url(url, PROXY_SCHEMES):
        # It may hold a password.
        raise errors.ConfigError(
            f"{'proxy-url' if named else 'the proxy of the environment'} is not the URL of a proxy "
            f"({', '.join(f'{scheme}://' for scheme in PROXY_SCHEMES)}): correct it"
        )
    return url


def _is_url(text: str, schemes: Sequence[str]) -> bool:
    try:
        parts = urllib.parse.urlsplit(text)
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


@contextmanager
def _explaining(origin: str) -> Iterator[None]:
    """Raise an error as one sentence about the files.

    Raises:
        errors.ConfigError: in place of any other.
    """
    try:
        yield
    except errors.ConfigError as error:
        raise errors.ConfigError(f"kubeconfig {origin}: {error}") from error
    except ConfigException as error:
        text = output.printable(" ".join(str(error).split()))[: credential_plugins.MESSAGE_CHARS]
        reason = text.removeprefix("Invalid kube-config file. ")
        raise errors.ConfigError(f"kubeconfig {origin} cannot be used: {reason}: correct the file") from error
    except (
        *(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError),
        *(client.OpenApiException, urllib3.exceptions.HTTPError, oauth2.OAuth2Error),
    ) as error:
        # The text of these may hold a secret.
        raise errors.ConfigError(
            f"kubeconfig {origin} cannot be used, or its login failed ({type(error).__name__}): try `kubectl version`"
        ) from error


def _run_within(seconds: float, work: Callable[[], T], origin: str) -> T:
    """Return the result of `work`, which the package does not limit in time."""
    result = concurrent.futures.Future[T]()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            result.set_exception(error)

    threading.Thread(target=run, name="login", daemon=True).start()
    try:
        return result.result(seconds + MARGIN_SECONDS)
    except TimeoutError as error:
        raise errors.ConfigError(
            f"kubeconfig {origin}: the login took more than {seconds:g} s: try `kubectl version`"
        ) from error
