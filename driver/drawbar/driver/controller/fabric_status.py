"""The writer of Fabrics' statuses, at most as often as people can read them."""

import asyncio
import datetime
import math
from collections.abc import Iterator

import msgspec

from drawbar.driver.api import fabrics
from drawbar.driver.controller import jobs, marks, names, node_labels, outcomes
from drawbar.driver.controller.cluster import Cluster
from drawbar.driver.controller.fabrics import connection, session, status
from drawbar.driver.controller.jobs import Job
from drawbar.fabric import contract

# If a manager's hosts or devices keep changing, its Fabric's status is written at this interval, after this burst.
SECONDS, BURST = 2.0, 10
NAMED_MAX = 10


class FabricStatus:
    """The writer of the statuses."""

    def __init__(self, cluster: Cluster, queue: jobs.Jobs) -> None:
        self._cluster = cluster
        self._jobs = queue
        # By Fabric: the time of the next regular write of its status, without bursts; on the event loop's clock.
        self._due: dict[str, float] = {}

    async def write(self, name: str) -> float | None:
        """Write the status if it differs; return the seconds to wait first if it was written too often recently."""
        fabric, view = self._cluster.fabrics.get(name), self._cluster.sessions.get(name)
        if fabric is None or view is None:
            self._due.pop(name, None)
            return None
        wanted = status.status(
            fabric,
            msgspec.structs.replace(
                view.view,
                troubles=self._troubles(fabric),
                contradicted=any(self._list_contradicted(name)),
                refused=self._cluster.refusals.message(name),
                incompatible=self._incompatible(fabric, view),
                not_offered=len(self._cluster.pools.find_not_offered(name)),
                reach_groups=node_labels.summarise(view),
            ),
            dropped_fields=self._cluster.pools.dropped_fields,
            attached=self._cluster.placed.count_attached(name),
            now=self._cluster.time_of_day(),
        )
        if wanted == fabric.status:
            return None
        now = asyncio.get_running_loop().time()
        due = max(self._due.get(name, -math.inf), now - BURST * SECONDS)
        if due > now:
            return due - now
        self._due[name] = due + SECONDS
        document = status.document(fabric, wanted)
        await self._cluster.fabrics.apply(
            fabric, document, manager=self._cluster.manager, subresource="status"
        )
        return None

    def _troubles(self, fabric: fabrics.Fabric) -> tuple[str, ...]:
        view = self._cluster.sessions.get(fabric.metadata.name)
        left_out = self._cluster.pools.left_out(fabric.metadata.name)
        sentences = []
        if view is not None:
            blamed = node_labels.find_faulty_hosts(self._cluster, fabric)
            for host in sorted(self._suspects(fabric, view) - blamed.keys()):
                failed = ", ".join(view.faults.devices_on(host))
                sentences.append(
                    f"host {host} may be at fault: attaches of {failed} failed there, for claims of one namespace; it is "
                    "offered until another namespace confirms it; look at its ports"
                )
            for host in sorted(blamed):
                failed = ", ".join(view.faults.devices_on(host))
                sentences.append(
                    f"host {host} is avoided: attaches of {failed} failed there; look at its ports"
                )
            sentences += self._contradictions(fabric.metadata.name)
            sentences += self._find_stranded(view)
            sentences += view.troubles.values()
            limited = [view.troubles[subject] for subject in connection.LIMITED if subject in view.troubles]
            # The message is cut, and these are the reason of the condition.
            sentences = list(dict.fromkeys((*limited, *sentences)))
        if fabric.metadata.annotations.get(fabrics.GIVE_UP_ANNOTATION) is not None and not fabric.given_up:
            sentences.append(status.GIVING_UP)
        if left_out:
            sentences.append(
                f"there is no room for all taints of {', '.join(left_out)}: only the worst are published"
            )
        return tuple(sentences)

    def _list_contradicted(self, fabric: str) -> Iterator[str]:
        """Yield the fabric manager's ids of the devices whose connections it does not show."""
        for attachment in self._cluster.placed.in_fabric(fabric):
            if not attachment.deleting and outcomes.contradiction(attachment) is not None:
                yield attachment.device_id

    def _contradictions(self, fabric: str) -> Iterator[str]:
        devices = sorted(self._list_contradicted(fabric))
        if devices:
            listed = ", ".join(devices[:NAMED_MAX]) + (", …" if len(devices) > NAMED_MAX else "")
            count = f"{len(devices)} attached device{'s' if len(devices) > 1 else ''}"
            yield (
                f"the fabric manager no longer shows the connection of {count} ({listed}): did it lose its state, or did "
                "another client move them? The condition Attached of each DeviceAttachment says more"
            )

    def _suspects(self, fabric: fabrics.Fabric, view: session.Session) -> frozenset[str]:
        probation = datetime.timedelta(seconds=fabric.spec.policy.probation_seconds)
        return view.faults.suspects(probation, self._cluster.clock())

    def _incompatible(
        self, fabric: fabrics.Fabric, view: session.Session
    ) -> tuple[fabrics.IncompatiblePair, ...]:
        """Return the pairs that are not tried now, and look again when the first of them may be."""
        probation, now = (
            datetime.timedelta(seconds=fabric.spec.policy.probation_seconds),
            self._cluster.clock(),
        )
        ends = view.pairs.ends(probation, now).values()
        if ends:
            seconds = max(1.0, (min(ends) - now).total_seconds())
            self._jobs.add(Job.STATUS, fabric.metadata.name, after=seconds)
            self._jobs.add(Job.LABELS, after=seconds)
        return view.pairs.build_report(probation, now)

    def _find_stranded(self, view: session.Session) -> tuple[str, ...]:
        def is_recorded(device: contract.Device) -> bool:
            key = names.DeviceKey(fabric=view.name, device=names.label(device.id))
            return self._cluster.attachments.get(key.attachment) is not None

        # Before the first mapping, everything would look stranded.
        if not view.nodes.host_of:
            return ()
        mapped = set(view.nodes.host_of.values())
        return marks.describe_stranded(view.devices, view.mark, recorded=is_recorded, mapped=mapped)
