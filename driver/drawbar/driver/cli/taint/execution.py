"""The reads of `drawbar taint`, and the execution of its plan.

Nothing is repaired. An error or an interrupt ends the steps, and stderr names the finished and the open ones.
"""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, assert_never

import msgspec

from drawbar.driver import errors
from drawbar.driver.api import slices, taintrules
from drawbar.driver.cli import podgroups, progress
from drawbar.driver.cli.taint import observed, rule_steps
from drawbar.driver.kube import client, decoding, discovery, kinds, mirror
from drawbar.driver.kube import errors as kube_errors

MANAGER = "drawbar-taint"
_UNSEEN_MINOR = 36
UNSEEN = (
    "the scheduler of Kubernetes 1.36 does not see DeviceTaintRules: a rule evicts, and a new pod may be given the device again; "
    "put fabric devices into maintenance as well: drawbar maintenance on device/NAME"
)


class _Version(msgspec.Struct):
    minor: str = ""


async def rule_kind(api: client.Client) -> kinds.Kind:
    """Return the kind DeviceTaintRule in the newest served version.

    Raises:
        errors.DrawbarError: no version is served.
    """
    kind = discovery.taint_rules(await discovery.resources(api, discovery.RESOURCE_GROUP))
    if kind is None:
        raise errors.DrawbarError(
            "the API server serves no DeviceTaintRules; use Kubernetes 1.37, turn on the gate DRADeviceTaintRules with its API version, "
            "or put fabric devices into maintenance: drawbar maintenance on device/NAME"
        )
    return kind


async def rules(
    api: client.Client, kind: kinds.Kind, *, name: str | None = None
) -> tuple[taintrules.DeviceTaintRule, ...]:
    """Return all rules, or the rule of a name with its batches."""
    listing = await api.list_all(kind, into=taintrules.DeviceTaintRule)
    return tuple(rule for rule in listing.items if name is None or name in (rule.metadata.name, rule.owner))


async def snapshot(api: client.Client) -> observed.Snapshot:
    """Return the slices and claims of the cluster.

    Raises:
        errors.DrawbarError: they are not served in the version that is read here, or cannot be read.
    """
    async with progress.show_activity("reading slices and claims"):
        try:
            listed = await api.list_all(kinds.SLICE, into=slices.ResourceSlice)
            claims = await api.list_all(kinds.CLAIM, into=observed.Claim)
        except kube_errors.NotFound as error:
            raise errors.DrawbarError(
                "the API server does not serve resource.k8s.io/v1; use Kubernetes 1.34 or later"
            ) from error
        items = claims.items
        if any(
            consumer.resource == podgroups.RESOURCE for item in items for consumer in item.status.reserved_for
        ):
            pods = await api.list_all(kinds.POD, into=observed.Pod)
            items = tuple(observed.resolve_pods(item, pods.items) for item in items)
    return observed.Snapshot(
        slices=listed.items, claims=items, unread=len(listed.unreadable) + len(claims.unreadable)
    )


async def warnings(api: client.Client, kind: kinds.Kind) -> tuple[str, ...]:
    """Return the warnings about effects that this release of Kubernetes does not have."""
    if kind.version == "v1":
        return ()
    with suppress(kube_errors.KubeError, decoding.Malformed, ValueError):
        version = decoding.decode(await api.request("GET", "/version"), _Version)
        if int(version.minor.rstrip("+")) == _UNSEEN_MINOR:
            return (UNSEEN,)
    return ()


async def has_rates(api: client.Client, kind: kinds.Kind, rule: dict[str, Any]) -> bool:
    """Return whether the API server keeps a taint's rate of evictions; nothing is stored.

    Raises:
        errors.DrawbarError: the API server refuses the rule.
    """
    probe = rule_steps.set_rate(rule, rule_steps.RATE)
    metadata = rule["metadata"]
    probe |= {"metadata": metadata | {"name": f"{metadata['name']}-probe"}}
    try:
        stored = await api.create(kind, probe, into=taintrules.DeviceTaintRule, dry_run=True)
    except kube_errors.Invalid as error:
        if rule["spec"]["taint"]["effect"] == rule_steps.EFFECTS[0]:
            raise errors.DrawbarError(
                f"{error}; before Kubernetes 1.35 there is no effect None: count with `drawbar taint preview`, and give --effect"
            ) from error
        raise
    return stored.spec.taint.evictions_per_second is not None


async def try_out(api: client.Client, kind: kinds.Kind, rule: dict[str, Any], *, is_new: bool) -> None:
    """Have the API server check the rule; nothing is stored.

    Raises:
        errors.DrawbarError: the API server refuses the rule.
    """
    if is_new:
        await api.create(kind, rule, into=taintrules.DeviceTaintRule, dry_run=True)
        return
    change = {
        "spec": {"taint": rule["spec"]["taint"]},
        "metadata": {"annotations": rule["metadata"]["annotations"]},
    }
    await api.patch(
        kind,
        rule["metadata"]["name"],
        change,
        content=client.Patch.MERGE,
        into=taintrules.DeviceTaintRule,
        manager=MANAGER,
        dry_run=True,
    )


async def delete(api: client.Client, kind: kinds.Kind, chosen: Sequence[taintrules.DeviceTaintRule]) -> None:
    """Delete rules in this order; after a failure, report the remaining ones on stderr."""
    for number, rule in enumerate(chosen):
        try:
            await api.delete(kind, rule.metadata.name, uid=rule.metadata.uid)
        except BaseException:
            left = ", ".join(item.metadata.name for item in chosen[number:])
            sys.stderr.write(f"stopped; deleted {number} of {len(chosen)} rules; these may be left: {left}\n")
            raise


@dataclass(slots=True, kw_only=True)
class Steps:
    """The execution of the steps to one rule.

    Attributes:
        uid: the rule's UID, once it exists.
        batch_rules: the number of existing rules of the current batch.
    """

    api: client.Client
    kind: kinds.Kind
    name: str
    uid: str = ""
    batch_rules: int = 0
    _done: int = 0
    _batches: int = 0
    _claims: mirror.Mirror[observed.Claim] = field(init=False)
    _rules: mirror.Mirror[taintrules.DeviceTaintRule] = field(init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._claims = mirror.Mirror(
            self.api, kinds.CLAIM, into=observed.Claim, changed=lambda _old, _new: self._changed.set()
        )
        self._rules = mirror.Mirror(
            self.api,
            self.kind,
            into=taintrules.DeviceTaintRule,
            labels=f"{taintrules.RULE_LABEL}={self.name}",
            changed=lambda _old, _new: self._changed.set(),
        )

    async def carry_out(self, planned: Sequence[rule_steps.Step]) -> None:
        """Carry out the steps in their order.

        Raises:
            errors.DrawbarError: a step failed, or the rule was removed meanwhile.
        """
        self._batches = rule_steps.batch_count(planned)
        try:
            if any(isinstance(step, rule_steps.Evict | rule_steps.Await) for step in planned):
                await self._carry_out_following(planned)
            else:
                await self._carry_out_all(planned)
        except BaseException:
            # This report comes before the error or the interrupt.
            sys.stderr.write(self._report(planned))
            sys.stderr.flush()
            raise

    async def _carry_out_following(self, planned: Sequence[rule_steps.Step]) -> None:
        """Carry out steps that wait for pods, with mirrors of the claims and the rules."""
        failure: errors.DrawbarError | None = None
        async with asyncio.TaskGroup() as tasks:
            copies = (self._claims, self._rules)
            following = [tasks.create_task(copy.run(), name="mirror") for copy in copies]
            for copy in copies:
                await copy.synced.wait()
            try:
                await self._carry_out_all(planned)
            except errors.DrawbarError as error:
                failure = error
            for task in following:
                task.cancel()
        if failure is not None:
            raise failure

    async def _carry_out_all(self, planned: Sequence[rule_steps.Step]) -> None:
        for step in planned:
            await self._carry_out(step)
            self._done += 1

    async def _carry_out(self, step: rule_steps.Step) -> None:
        match step:
            case rule_steps.Create(document=document):
                self.uid = (await self._create(document)).metadata.uid
            case rule_steps.Change(content=content):
                await self._change(content)
            case rule_steps.Evict():
                await self._evict(step)
            case rule_steps.Await(pods=pods):
                await self._await_release(pods)
            case rule_steps.DeleteBatches():
                batches = await rules(self.api, self.kind, name=self.name)
                await delete(self.api, self.kind, [rule for rule in batches if rule.is_batch])
            case _:
                assert_never(step)

    async def _create(self, document: dict[str, Any]) -> taintrules.DeviceTaintRule:
        stored = await self.api.create(self.kind, document, into=taintrules.DeviceTaintRule)
        self._rules.learn(stored)
        return stored

    async def _change(self, content: dict[str, Any]) -> None:
        metadata = content.get("metadata", {}) | {"uid": self.uid}
        try:
            await self.api.patch(
                self.kind,
                self.name,
                content | {"metadata": metadata},
                content=client.Patch.MERGE,
                into=taintrules.DeviceTaintRule,
                manager=MANAGER,
            )
        except (kube_errors.NotFound, kube_errors.Conflict) as error:
            raise self._removal_error() from error

    async def _evict(self, batch: rule_steps.Evict) -> None:
        began = asyncio.get_running_loop().time()
        self.batch_rules = 0
        if not self._stands:
            raise self._removal_error()
        for document in batch.documents:
            # Such rules come from an interrupted command.
            with suppress(kube_errors.AlreadyExists):
                await self._create(document)
            self.batch_rules += 1
        sys.stderr.write(
            f"batch {batch.number} of {self._batches}: {rule_steps.count_noun(len(batch.pods), 'pod')}\n"
        )
        await self._await_release(batch.pods)
        self.batch_rules = 0
        await asyncio.sleep(max(0.0, began + batch.seconds - asyncio.get_running_loop().time()))

    async def _await_release(self, pods: frozenset[str]) -> None:
        """Return once no claim is reserved for one of these pods."""
        shown = len(pods)
        while left := self._remaining_pods(pods):
            if not self._stands:
                raise self._removal_error()
            if len(left) != shown:
                shown = len(left)
                sys.stderr.write(f"{len(pods) - shown} of {rule_steps.count_noun(len(pods), 'pod')} gone\n")
                sys.stderr.flush()
            self._changed.clear()
            async with progress.show_activity(
                f"waiting until {rule_steps.count_noun(shown, 'pod')} have released their devices"
            ):
                await self._changed.wait()
        sys.stderr.write(f"{len(pods)} of {rule_steps.count_noun(len(pods), 'pod')} gone\n")
        sys.stderr.flush()

    def _remaining_pods(self, pods: frozenset[str]) -> set[str]:
        return {consumer.uid for claim in self._claims for consumer in claim.pods if consumer.uid in pods}

    @property
    def _stands(self) -> bool:
        rule = self._rules.get(self.name)
        return rule is not None and rule.metadata.uid == self.uid and rule.metadata.deletion_timestamp is None

    def _removal_error(self) -> errors.DrawbarError:
        return errors.DrawbarError(
            f"DeviceTaintRule {self.name} was removed meanwhile; nothing more is evicted because of it"
        )

    def _report(self, planned: Sequence[rule_steps.Step]) -> str:
        """Return the finished and the open steps as text."""
        lines = ["stopped before the end; steps that are done stay in effect:"]
        for number, step in enumerate(planned):
            state = "done" if number < self._done else "not done"
            if number == self._done:
                state = "begun, perhaps with an effect"
                if isinstance(step, rule_steps.Evict):
                    state = f"begun, {self.batch_rules} of {rule_steps.count_noun(len(step.documents), 'rule')} created"
            lines.append(f"- {state}: {rule_steps.sentence(step, self.name)}")
        lines.append(
            f"look: `drawbar taint show {self.name}`; go on: give the command again; undo: `drawbar taint remove {self.name}`"
        )
        return "\n".join(lines) + "\n"
