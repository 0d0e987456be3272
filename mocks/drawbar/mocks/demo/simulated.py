"""The default stage: a double of a fabric, and nodes whose kernels are mocked by files."""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from drawbar.fabric.contract import DeviceClass
from drawbar.mocks import cluster, errors
from drawbar.mocks.apiserver import profiles
from drawbar.mocks.claims import dialects
from drawbar.mocks.demo import pods, progress, stages
from drawbar.mocks.fabric import pool

MOST_PODS = 96  # with the spare devices two enclosures hold them, and a node has slots for all
LEAST_SLOTS = 4
CLASSES: Mapping[str, Sequence[DeviceClass]] = MappingProxyType(
    {
        "redfish-composition": tuple(each for each in pods.CLASSES if each is not DeviceClass.NIC),
        "redfish-connections": (DeviceClass.CXL_MEMORY,),
    }
)
"""The classes of the doubles that do not support every class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the simulated stage.

    Attributes:
        double: the double of the fabric; see `cluster.Settings`.
    """

    double: str = "simulated"
    pods: int = 4
    nodes: int = 3
    attach_seconds: float = 2.0
    detach_seconds: float = 1.0
    deadline_seconds: float = 120.0
    profile: str = "1.36"

    @property
    def dialect(self) -> dialects.Dialect:
        """Return the API version of claims in the release."""
        version = profiles.profile(self.profile).dynamic_version
        return next(dialect for dialect in (dialects.MODERN, *dialects.CLASSIC) if dialect.version == version)


def validate(options: Options) -> None:
    """Check the options that the cluster itself does not check.

    Raises:
        errors.UsageError: an option is wrong; the message lists all problems.
    """
    problems = []
    if options.profile not in profiles.PROFILES:
        names = ", ".join(profiles.PROFILES)
        problems.append(f"--profile {options.profile} is not imitated: use one of {names}")
    elif not _offers(profiles.profile(options.profile)):
        problems.append(
            f"--profile {options.profile} cannot show it: its feature gate {profiles.BINDING_CONDITIONS} is off, so no device "
            f"is offered that has to be attached first; use 1.36 or later, or a classic one"
        )
    if not 1 <= options.pods <= MOST_PODS:
        problems.append(f"--pods {options.pods} is not possible: the demo runs 1 to {MOST_PODS} pods")
    if not 1 <= options.nodes <= cluster.MOST_NODES:
        problems.append(
            f"--nodes {options.nodes} is not possible: the demo runs 1 to {cluster.MOST_NODES} nodes"
        )
    for option, seconds in (
        ("--attach-seconds", options.attach_seconds),
        ("--detach-seconds", options.detach_seconds),
    ):
        if not 0 <= seconds <= options.deadline_seconds:
            problems.append(f"{option} {seconds:g} is not between 0 and the deadline")
    if options.deadline_seconds <= 0:
        problems.append(f"--deadline {options.deadline_seconds:g} is not a positive number of seconds")
    if problems:
        raise errors.UsageError("; ".join(problems))


def _offers(profile: profiles.Profile) -> bool:
    """Return true if that release can allocate a device before its attach."""
    return profile.classic or profile.is_on(profiles.BINDING_CONDITIONS)


class World:
    """A running cluster of doubles; see `stages.World`."""

    def __init__(self, running: cluster.Cluster) -> None:
        paths = running.paths
        self.api = running.api
        self.journal = paths.journal
        self.where = stages.Whereabouts(
            kubeconfig=paths.admin,
            directory=paths.directory,
            logs=paths.logs,
            notes=(f"CDI files: {paths.directory}/node-*/cdi/*.json",),
            fabric_control=paths.fabric_control if paths.fabric_control.exists() else None,
        )
        self._cluster = running

    @property
    def keep_logs(self) -> bool:
        """Return true if the logs stay after the end."""
        return self._cluster.keep_logs

    @keep_logs.setter
    def keep_logs(self, wanted: bool) -> None:
        self._cluster.keep_logs = wanted

    async def witness(self, see: Callable[[progress.Sighting], None]) -> None:
        """Return at once: the mocked kernels report nothing beyond the node daemons' reports."""

    async def read(self, view: progress.View) -> str:
        """Raise ClusterError: the emulated containers are no processes."""
        raise cluster.ClusterError(f"the container of {view.pod} is no process, so it cannot read its device")

    async def leaks(self) -> int:
        """Return the number of leaked attached devices, attachments, CDI files and functions in the mocked trees."""
        return (await self._cluster.leaks()).total


class Stage:
    """A cluster of doubles; see `stages.Stage`."""

    def __init__(self, options: Options) -> None:
        classic = options.dialect.context is not None
        self.steps = progress.CLASSIC if classic else progress.SIMULATED
        self._classes = CLASSES.get(options.double, pods.CLASSES)
        self.wanted = pods.assign_classes(options.pods, self._classes)
        self._options = options

    @contextlib.asynccontextmanager
    async def running(self, report: Callable[[cluster.Happening], None]) -> AsyncIterator[stages.World]:
        """Run the cluster until the block ends, and yield it; errors as in `cluster.Cluster.running`."""
        options = self._options
        settings = cluster.Settings(
            nodes=tuple(f"node-{number + 1}" for number in range(options.nodes)),
            enclosures=pool.make_enclosures(pods.amounts(options.pods, self._classes)),
            slots=max(LEAST_SLOTS, options.pods),
            attach_seconds=options.attach_seconds,
            detach_seconds=options.detach_seconds,
            profile=options.profile,
            double=options.double,
        )
        async with cluster.Cluster.running(settings, report) as running:
            yield World(running)
