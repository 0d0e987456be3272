"""Where the flows run: on doubles in this process, a new set for each test, or on real components.

With DRAWBAR_KUBERNETES_BIN=DIR (`make kubernetes`) these are started from the binaries in DIR, and stay for the next
tests that want the same gates; then a test that imitates another release is skipped. Daemons act there under the roles
and policies of `deploy/manifests` and with tokens of their own service accounts, the node daemons' bound to their Nodes.
"""

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from drawbar.driver.kube import client, config
from drawbar.mocks import apiserver, claims, eviction, kubelet, scheduler
from drawbar.mocks.apiserver import faults, profiles
from drawbar.mocks.cluster import deployment
from drawbar.mocks.testing import worlds

NODES = ("node-1", "node-2")
BINARIES = "DRAWBAR_KUBERNETES_BIN"
USUAL_TIMEOUT_SECONDS = 600
NO_DETACH = faults.Fault(
    select=faults.Selection(verb="delete", resource="deviceattachments"), effect=faults.Refusal(code=503)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a test needs of its cluster.

    Attributes:
        profile: the release, as the doubles name it.
        gates: feature gates besides those of the release.
        binding_timeout_seconds: the scheduler's patience with binding conditions.
    """

    profile: str
    gates: Mapping[str, bool]
    binding_timeout_seconds: int


class Doubles:
    """API server, claim controller, eviction, kubelets and scheduler in this process, with short pauses.

    No eviction by taints with classic allocation, which has no devices with taints.
    """

    patience_seconds = 30.0

    def __init__(self, path, server, release):
        self.path, self.server, self.release = path, server, release
        self.admin = server.kubeconfig(path / "admin", "admin")
        self.connection = config.from_kubeconfig(self.admin)

    def kubeconfig(self, path, account, *, node=None):
        """Write a kubeconfig of a service account."""
        return self.server.kubeconfig(path, account, node=node)

    async def takes_nothing_back(self, _):
        """Refuse every deletion of an attachment."""
        lift = self.server.faults.add(NO_DETACH).lift

        class Held:
            async def lift(self):
                lift()

        return Held()

    async def allow_immediate(self, _):
        """Do nothing, as no admission policy is in force."""

    async def tidy(self, _):
        """Do nothing, as nothing stays."""


@contextlib.asynccontextmanager
async def doubles(options):
    release = profiles.profile(options.profile)
    # pytest's folders are too deep for sockets.
    with tempfile.TemporaryDirectory(prefix="drawbar-") as folder:
        path = Path(folder)
        async with contextlib.AsyncExitStack() as stack:
            enter = stack.enter_async_context
            server = await enter(apiserver.serving(profile=options.profile, gates=options.gates or None))
            site = Doubles(path, server, release)
            async with client.connecting(site.connection) as api:
                await deployment.apply(api, version=release.dynamic_version)
            await enter(claims.serving(site.connection))
            if not release.classic:
                await enter(eviction.serving(site.connection, eviction.Settings(status_seconds=0.1)))
            specs = [kubelet.NodeSpec(name=name, directory=path / name / "k") for name in NODES]
            kubelets = dataclasses.replace(worlds.KUBELET, release=release.release)
            await enter(kubelet.serving(site.connection, specs, kubelets))
            times = scheduler.Settings(
                poll_seconds=0.05,
                binding_timeout_seconds=options.binding_timeout_seconds,
                backoff_first_seconds=0.05,
                backoff_max_seconds=0.2,
            )
            await enter(scheduler.serving(site.connection, times))
            yield site


def open_site(options):
    """Return a context manager: `async with open_site(options) as site`.

    The site consists of doubles, or of real components if their binaries are named."""
    if os.environ.get(BINARIES):
        from tests.driver.flows import real

        return real.running_cluster(options, Path(os.environ[BINARIES]))
    return doubles(options)


def close():
    """End real components, if any were started."""
    if os.environ.get(BINARIES):
        from tests.driver.flows import real

        real.close()
