"""The whole cluster, kept current by watches, for views that stay open."""

import asyncio
import contextlib
import datetime
import heapq
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from drawbar.driver import clocks, errors
from drawbar.driver.api import attachments, claims, fabrics, slices, taintrules
from drawbar.driver.cli import progress, remedies
from drawbar.driver.cli.doctor.findings import Unread
from drawbar.driver.cli.status import observed, reading
from drawbar.driver.kube import client, discovery, kinds, mirror
from drawbar.driver.kube import errors as kube_errors

FIRST_ANSWER_SECONDS = 60.0
_REQUEST = re.compile(r"^(?:GET|WATCH) \S+: ")

Changed = Callable[[mirror.Item | None, mirror.Item | None], None]
"""A function that gets each object before and after a change, or None; it must not block."""


class Live:
    """The objects of a status, the pods without a node, the DeviceTaintRules and Drawbar's Events.

    Args:
        api: the API server.
        driver: the DRA driver's name.
        changed: see `Changed`.
        rules: the served version of DeviceTaintRule; None if the API server serves none.
    """

    def __init__(
        self, api: client.Client, *, driver: str, changed: Changed, rules: kinds.Kind | None = None
    ) -> None:
        self._driver = driver

        def follow(kind: kinds.Kind, into: type[Any], fields: str = "") -> mirror.Mirror[Any]:
            return mirror.Mirror(
                api, kind, into=into, changed=changed, fields=fields, clock=clocks.time_of_day
            )

        self._fabrics: mirror.Mirror[fabrics.Fabric] = follow(kinds.FABRIC, fabrics.Fabric)
        self._slices: mirror.Mirror[slices.ResourceSlice] = follow(
            kinds.SLICE, slices.ResourceSlice, f"spec.driver={driver}"
        )
        self._attachments: mirror.Mirror[attachments.DeviceAttachment] = follow(
            kinds.ATTACHMENT, attachments.DeviceAttachment
        )
        self._claims: mirror.Mirror[claims.ResourceClaim] = follow(kinds.CLAIM, claims.ResourceClaim)
        self._events: mirror.Mirror[observed.Event] = follow(
            kinds.EVENT, observed.Event, f"reportingController={driver}"
        )
        self._pods: mirror.Mirror[observed.UnscheduledPod] = follow(
            kinds.POD, observed.UnscheduledPod, "spec.nodeName="
        )
        self._mirrors: dict[str, mirror.Mirror[Any]] = {
            "fabrics": self._fabrics,
            "resourceslices": self._slices,
            "deviceattachments": self._attachments,
            "resourceclaims": self._claims,
            "events": self._events,
            "pods": self._pods,
        }
        self._rules: mirror.Mirror[taintrules.DeviceTaintRule] | None = None
        if rules is not None:
            self._rules = self._mirrors[rules.plural] = follow(rules, taintrules.DeviceTaintRule)

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for plural, followed in self._mirrors.items():
                tasks.create_task(followed.run(), name=f"{plural}-status")

    async def ready(self) -> None:
        """Wait for the first answer of each collection.

        Raises:
            reading.Incomplete: the API server does not answer, or nothing can be read.
        """
        try:
            async with asyncio.timeout(FIRST_ANSWER_SECONDS):
                for followed in self._mirrors.values():
                    await followed.answered.wait()
        except TimeoutError as error:
            raise reading.Incomplete(
                f"the API server has not answered within {FIRST_ANSWER_SECONDS:g} s; look at it, or at the network"
            ) from error
        problems = [followed.problem for followed in self._mirrors.values()]
        if all(problem is not None for problem in problems):
            raise reading.Incomplete("nothing can be read: " + self.unread()[0])

    def cluster(self) -> observed.Cluster:
        """Return the present state of the cluster."""
        return observed.Cluster(
            driver=self._driver,
            fabrics=tuple(self._fabrics),
            slices=tuple(self._slices),
            attachments=tuple(self._attachments),
            claims=tuple(self._claims),
            rules=tuple(self._rules) if self._rules is not None else (),
            pods=tuple(self._pods),
            unlisted=self.find_unlisted(),
            unread=self.unread(),
        )

    def unread(self) -> tuple[str, ...]:
        """Return a sentence for the collections without a working watch, by reason, and for objects that cannot be read."""
        collections = describe_problems(
            {
                plural: followed.problem
                for plural, followed in self._mirrors.items()
                if followed.problem is not None
            }
        )
        objects = [left for followed in self._mirrors.values() for left in followed.unreadable.values()]
        return (*collections, *reading.describe_unreadable(objects))

    def find_unlisted(self) -> frozenset[str]:
        """Return the plural names of the collections without a working watch."""
        return frozenset(plural for plural, followed in self._mirrors.items() if followed.problem is not None)

    def find_stale(self) -> Mapping[str, datetime.datetime]:
        """Return, for each collection that was listed and has no working watch now, when it was last current."""
        return {
            plural: followed.current_until
            for plural, followed in self._mirrors.items()
            if followed.current_until is not None
        }

    @property
    def is_unreachable(self) -> bool:
        """Return whether the API server answers for no collection."""
        return all(
            isinstance(followed.problem, kube_errors.Unreachable) for followed in self._mirrors.values()
        )

    def fabrics(self) -> tuple[fabrics.Fabric, ...]:
        """Return the Fabrics of the driver."""
        return tuple(fabric for fabric in self._fabrics if fabric.spec.driver == self._driver)

    def events(self, most: int) -> tuple[observed.Event, ...]:
        """Return the latest Events, the newest first."""
        return tuple(heapq.nlargest(most, self._events, key=lambda event: event.at))


@contextlib.asynccontextmanager
async def following(api: client.Client, *, driver: str, changed: Changed) -> AsyncIterator[Live]:
    """Yield the cluster once it has been read, and follow it during the block.

    Raises:
        errors.DrawbarError: see `Live.ready`.
    """
    cluster = Live(api, driver=driver, changed=changed, rules=await _taint_rules(api))
    try:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(cluster.run(), name="cluster")
            async with progress.show_activity("reading the cluster"):
                await cluster.ready()
            yield cluster
            running.cancel()
    except* errors.DrawbarError as group:
        raise group.exceptions[0] from None


async def _taint_rules(api: client.Client) -> kinds.Kind | None:
    """Return the served version of DeviceTaintRule, or None if there is none or the API server does not say."""
    try:
        return discovery.taint_rules(await discovery.resources(api, discovery.RESOURCE_GROUP))
    except kube_errors.KubeError:
        return None


def describe_problems(problems: Mapping[str, kube_errors.KubeError]) -> tuple[str, ...]:
    """Return one sentence for each reason why collections cannot be read; it names all collections with that reason."""
    by_reason: dict[str, list[str]] = {}
    for plural, problem in problems.items():
        by_reason.setdefault(_describe_reason(problem), []).append(plural)
    return tuple(
        reading.sentence(_unread(plurals, problems[plurals[0]], reason))
        for reason, plurals in by_reason.items()
    )


def _describe_reason(error: kube_errors.KubeError) -> str:
    """Return the error without the collection."""
    if _is_forbidden(error):
        return "403 Forbidden"
    return _REQUEST.sub("", remedies.plain(str(error)))


def _is_forbidden(error: kube_errors.KubeError) -> bool:
    return isinstance(error, kube_errors.Denied) and not isinstance(error, kube_errors.Unauthenticated)


def _unread(plurals: list[str], error: kube_errors.KubeError, reason: str) -> Unread:
    what = ", ".join(plurals)
    if _is_forbidden(error):
        return Unread(what=what, why=reason, permission=f"list and watch {what}")
    return Unread(what=what, why=reason, remedy=remedies.find_remedy(error))
