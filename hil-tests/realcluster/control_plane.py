"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler together.

    with ControlPlane.running(found, folder) as plane:
        plane.kubeconfig("admin")
        plane.kill("etcd"); plane.start("etcd"); plane.wait_ready()

Once entered, the API server is ready, default service accounts are made and the scheduler has begun. On leaving, every
process is gone. Any component may be killed and started again at any moment; ports and state stay the same.
"""

import contextlib
import dataclasses
import json
import secrets
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import trustme

from realcluster import errors, processes, programs
from realcluster.binaries import Binaries

ETCD = "etcd"
APISERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
COMPONENTS = (ETCD, APISERVER, CONTROLLER_MANAGER, SCHEDULER)
"""In the order in which they are started."""
NODES = ("node-1", "node-2")
READY_SECONDS = 180.0
REQUEST_SECONDS = 5.0


class ControlPlane:
    """A running control plane; make it with `running`.

    Attributes:
        settings: what it was started with.
        components: by name each of `COMPONENTS`.
    """

    def __init__(self, settings: programs.Settings, nodes: Sequence[str]) -> None:
        self.settings = settings
        users = (programs.ADMIN, programs.KCM, programs.SCHEDULER, *(programs.NODE_PREFIX + n for n in nodes))
        self._tokens = {user: secrets.token_urlsafe(24) for user in users}
        commands: dict[str, list[str]] = {
            ETCD: programs.etcd(settings),
            APISERVER: programs.apiserver(settings),
            CONTROLLER_MANAGER: programs.controller_manager(settings),
            SCHEDULER: programs.scheduler(settings),
        }
        self.components = {
            name: processes.Component(name, argv, settings.folder / f"{name}.log")
            for name, argv in commands.items()
        }
        self._trust: ssl.SSLContext | None = None

    @classmethod
    @contextlib.contextmanager
    def running(
        cls,
        installed: Binaries,
        folder: Path,
        *,
        gates: Mapping[str, bool] | None = None,
        nodes: Sequence[str] = NODES,
        binding_timeout_seconds: int | None = None,
        base_port: int | None = None,
    ) -> Iterator[Self]:
        """Run a control plane for as long as the block lasts.

        Args:
            installed: the binaries.
            folder: for state and logs, which stay behind.
            gates: feature gates; None: what Drawbar needs of the release.
            nodes: the names of the nodes that kubelets may have, each with credentials.
            binding_timeout_seconds: the scheduler's; None: its default.
            base_port: the first of three ports; None: free ones.

        Raises:
            errors.ComponentFailed: a component ends, or is not ready in time.
        """
        folder.mkdir(parents=True, exist_ok=True)
        settings = programs.Settings(
            binaries=installed,
            folder=folder,
            ports=_ports(base_port),
            gates=programs.default_gates(installed.release) if gates is None else dict(gates),
            binding_timeout_seconds=binding_timeout_seconds,
        )
        plane = cls(settings, nodes)
        plane.write_files()
        try:
            for name in COMPONENTS:
                plane.start(name)
                if name in (ETCD, APISERVER):
                    plane.wait_ready(name)
            plane.wait_ready()
            yield plane
        finally:
            plane.stop_all()

    @property
    def admin(self) -> Path:
        """Return the administrator's kubeconfig."""
        return self.kubeconfig(programs.ADMIN)

    @property
    def pids(self) -> dict[str, int]:
        """Return the components that run, by name."""
        return {
            name: component.pid for name, component in self.components.items() if component.pid is not None
        }

    def kubeconfig(self, user: str) -> Path:
        """Return the path of a static user's kubeconfig: `admin`, or `system:node:NAME`.

        Raises:
            errors.RealClusterError: the control plane was started without this user.
        """
        if user not in self._tokens:
            raise errors.RealClusterError(f"no user {user}: name the node when the control plane is started")
        return self.settings.kubeconfig(user)

    def start(self, name: str) -> None:
        """Start a component without waiting for it; in the main thread."""
        self.components[name].start()

    def stop(self, name: str) -> None:
        """End a component in order."""
        self.components[name].stop()

    def kill(self, name: str) -> None:
        """End a component as `kill -9` does."""
        self.components[name].kill()

    def restart(self, name: str) -> None:
        """End a component in order, start it, and wait until it serves."""
        self.stop(name)
        self.start(name)
        self.wait_ready(name)

    def schedule_with(self, binding_timeout_seconds: int | None) -> None:
        """Restart the scheduler with another timeout of binding conditions; None: its default."""
        self.settings = dataclasses.replace(self.settings, binding_timeout_seconds=binding_timeout_seconds)
        self._write_scheduler()
        self.restart(SCHEDULER)

    def wait_ready(self, name: str | None = None, seconds: float = READY_SECONDS) -> None:
        """Wait until a component serves, or all of them. May be called in any thread.

        Raises:
            errors.ComponentFailed: it ended, or does not by then.
        """
        checks: dict[str, Callable[[], bool]] = {
            ETCD: self._etcd_ready,
            APISERVER: lambda: self._get("/readyz") == "ok",
            CONTROLLER_MANAGER: lambda: self._get("/api/v1/namespaces/default/serviceaccounts/default") != "",
            # It serves no port; when it has begun it has listed what it schedules.
            SCHEDULER: lambda: True,
        }
        for component in COMPONENTS if name is None else (name,):
            self.components[component].until(checks[component], seconds)

    def stop_all(self) -> None:
        """End all components, the last started first."""
        for name in reversed(COMPONENTS):
            self.components[name].stop()

    def service_account_kubeconfig(
        self, path: Path, account: str, *, node: str | None = None, seconds: int = 7200
    ) -> Path:
        """Ask for a service account's token, as its pods have, and write a kubeconfig with it.

        Args:
            path: the file.
            account: `NAMESPACE:NAME`.
            node: the Node that the token is bound to, as that of a DaemonSet's pod.
            seconds: how long it holds.

        Raises:
            errors.RealClusterError: the API server refuses.
        """
        namespace, _, name = account.partition(":")
        spec: dict[str, Any] = {"expirationSeconds": seconds}
        if node is not None:
            uid = json.loads(self.request("GET", f"/api/v1/nodes/{node}"))["metadata"]["uid"]
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = self.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", body)
        token = json.loads(answer)["status"]["token"]
        return self._write_kubeconfig(path, account, token)

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> str:
        """Make one request as the administrator; return the body of the answer.

        Raises:
            errors.RealClusterError: the API server refuses or cannot be reached.
        """
        request = urllib.request.Request(
            self.settings.server + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._tokens[programs.ADMIN]}",
                "Content-Type": "application/json",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_SECONDS, context=self._context()) as answer:
                text: str = answer.read().decode()
                return text
        except urllib.error.HTTPError as error:
            with error:
                message = error.read().decode(errors="replace")[:300]
            raise errors.RealClusterError(f"{method} {path}: {error.code} {message}") from error
        except OSError as error:
            raise errors.RealClusterError(f"{method} {path}: {error}") from error

    def write_files(self) -> None:
        """Write key, tokens, kubeconfigs and the scheduler's configuration."""
        folder = self.settings.folder
        folder.chmod(0o700)
        key = folder / "service-account.key"
        if not key.exists():
            key.write_bytes(trustme.CA(key_type=trustme.KeyType.RSA).private_key_pem.bytes())
        (folder / "tokens.csv").write_text(programs.tokens(self._tokens))
        for user, token in self._tokens.items():
            self._write_kubeconfig(self.settings.kubeconfig(user), user, token)
        self._write_scheduler()

    def _write_scheduler(self) -> None:
        content = programs.scheduler_configuration(self.settings)
        (self.settings.folder / "scheduler.yaml").write_text(programs.as_json(content))

    def _write_kubeconfig(self, path: Path, user: str, token: str) -> Path:
        authority = str(self.settings.certificates / "apiserver.crt")
        content = programs.kubeconfig(self.settings.server, authority, user, token)
        path.write_text(programs.as_json(content))
        path.chmod(0o600)
        return path

    def _context(self) -> ssl.SSLContext:
        if self._trust is None:
            self._trust = ssl.create_default_context(cafile=str(self.settings.certificates / "apiserver.crt"))
        return self._trust

    def _etcd_ready(self) -> bool:
        url = f"http://127.0.0.1:{self.settings.ports.etcd}/health"
        try:
            with urllib.request.urlopen(url, timeout=REQUEST_SECONDS) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _get(self, path: str) -> str:
        try:
            return self.request("GET", path)
        except (errors.RealClusterError, FileNotFoundError):
            return ""


def _ports(base: int | None) -> programs.Ports:
    if base is not None:
        return programs.Ports(apiserver=base, etcd=base + 1, etcd_peer=base + 2)
    first, second, third = free_ports(3)
    return programs.Ports(apiserver=first, etcd=second, etcd_peer=third)


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 on which no process listens now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [int(listener.getsockname()[1]) for listener in sockets]
