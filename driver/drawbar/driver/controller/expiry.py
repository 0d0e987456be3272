"""The end of the DeviceTaintRules of `drawbar taint`: expired rules are deleted while this controller leads.

Only rules with the label of `drawbar taint` are listed, and only those that name an end are deleted, by UID and
version. So a rule whose end was moved meanwhile stays. If a cluster has several Drawbars, any may delete a rule; the
others see it gone.

The rules are read at intervals: they are few, and most clusters have none. At most `RULES_MAX` are deleted at a time.
"""

import asyncio
import datetime
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from drawbar.driver.api import taintrules
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller.cluster import Cluster
from drawbar.driver.kube import discovery, errors, kinds

log = logging.getLogger(__name__)

LOOK_SECONDS = 20.0
LOOKS_PER_DISCOVERY = 30
"""The served versions are read every 10 minutes, since an upgrade may change them, and after a failed look."""
RULES_MAX = 50


class End(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a rule.

    Attributes:
        written: the end in the rule, by the time of day.
        due: the same time on the steady clock, computed when the rule was first seen with this end.
    """

    written: datetime.datetime
    due: datetime.datetime


def ends(
    rules: Iterable[taintrules.DeviceTaintRule],
    earlier: Mapping[str, End],
    now: datetime.datetime,
    date: datetime.datetime,
) -> dict[str, End]:
    """Return the ends of the rules with an end, by UID.

    A rule keeps its first computed end, so a step of the system time neither ends it early nor keeps it longer.

    Args:
        rules: all rules.
        earlier: the ends from the last call.
        now: the time on the steady clock.
        date: the time of day.
    """
    by_uid = {}
    for rule in rules:
        uid, written = rule.metadata.uid, rule.expires_at
        if written is not None:
            before = earlier.get(uid)
            if before is None or before.written != written:
                before = End(written=written, due=now + max(written - date, datetime.timedelta()))
            by_uid[uid] = before
    return by_uid


def find_expired(
    rules: Iterable[taintrules.DeviceTaintRule], ends: Mapping[str, End], now: datetime.datetime
) -> tuple[taintrules.DeviceTaintRule, ...]:
    """Return the expired rules, at most `RULES_MAX`; a rule comes before its batches, so that no further batch begins."""
    over = [rule for rule in rules if (end := ends.get(rule.metadata.uid)) is not None and end.due <= now]
    return tuple(sorted(over, key=lambda rule: (rule.is_batch, rule.metadata.name))[:RULES_MAX])


@dataclass(slots=True, kw_only=True)
class Expiry:
    """The deletion of expired rules."""

    cluster: Cluster
    _kind: kinds.Kind | None = None
    _looks: int = 0
    _logged: str = field(default="")
    _ends: dict[str, End] = field(default_factory=dict)

    async def run(self) -> None:
        """Delete expired rules at intervals until cancelled."""
        while True:
            try:
                await self.look()
                self._logged = ""
            except errors.KubeError as error:
                self._looks = 0
                if str(error) != self._logged:
                    self._logged = str(error)
                    log.log(errors.level(error), "cannot end DeviceTaintRules, trying again: %s", error)
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Delete the expired rules; a refused deletion does not stop the others.

        Raises:
            errors.KubeError: the API server does not answer, or refuses.
        """
        api = self.cluster.api
        if self._looks == 0:
            self._kind = discovery.taint_rules(await discovery.resources(api, discovery.RESOURCE_GROUP))
        self._looks = (self._looks + 1) % LOOKS_PER_DISCOVERY
        if self._kind is None:
            return
        listing = await api.list_all(
            self._kind, into=taintrules.DeviceTaintRule, labels=taintrules.RULE_LABEL
        )
        now = self.cluster.clock()
        self._ends = ends(listing.items, self._ends, now, self.cluster.time_of_day())
        refused: list[errors.KubeError] = []
        for rule in find_expired(listing.items, self._ends, now):
            try:
                await self._end(self._kind, rule)
            except (errors.Denied, errors.Invalid) as error:
                refused.append(error)
        if refused:
            raise refused[0]

    async def _end(self, kind: kinds.Kind, rule: taintrules.DeviceTaintRule) -> None:
        metadata = rule.metadata
        try:
            await self.cluster.api.delete(
                kind, metadata.name, uid=metadata.uid, resource_version=metadata.resource_version
            )
        except errors.Conflict:
            # The rule changed since it was listed; the next look judges it again.
            return
        effect, end = rule.spec.taint.effect, rule.metadata.annotations[taintrules.EXPIRES_ANNOTATION]
        extra = {"rule": metadata.name, "effect": effect, "expires_at": end}
        log.info("DeviceTaintRule expired and was deleted", extra=extra)
        by = metadata.annotations.get(taintrules.CREATED_BY_ANNOTATION, "an unknown user")
        message = f"deleted, since its time ended at {end}; it had effect {effect} and was made by {by}"
        self.cluster.recorder.rule_normal(
            kind, metadata.name, metadata.uid, reason=reasons.TAINT_RULE_EXPIRED, message=message
        )
