"""Classic claims with the objects that they refer to, from the API server, in a form of no API version.

Every version that was served at the start is watched; no release serves two. If two served a claim, the form that names
a driver would count. Only waiting pods are watched, and only ConfigMaps that are labelled as parameters.
"""

import datetime
import functools
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from drawbar.driver import containment
from drawbar.driver.api import attachments, classic, classic_v1alpha2, classic_v1alpha3
from drawbar.driver.controller import claims as claim_index
from drawbar.driver.controller import names
from drawbar.driver.controller.classic import claim_requests
from drawbar.driver.kube import client, events, kinds, mirror

PENDING = "status.phase=Pending"
_Key = tuple[classic.Version, classic.Name]
_Changed = Callable[[Any, Any], None]


class Form(msgspec.Struct, frozen=True):
    """One version's types of claims and classes, and their readers."""

    claim: Any
    read_claim: Callable[[Any, str], classic.Claim]
    class_kind: kinds.Kind
    device_class: Any
    read_class: Callable[[Any, str], classic.Class]


FORMS: Mapping[classic.Version, Form] = {
    classic.Version.V1ALPHA2: Form(
        classic_v1alpha2.ResourceClaim,
        classic_v1alpha2.claim,
        kinds.RESOURCE_CLASS,
        classic_v1alpha2.ResourceClass,
        lambda document, _: classic_v1alpha2.resource_class(document),
    ),
    classic.Version.V1ALPHA3: Form(
        classic_v1alpha3.ResourceClaim,
        classic_v1alpha3.claim,
        kinds.CLASSIC_DEVICE_CLASS,
        classic_v1alpha3.DeviceClass,
        classic_v1alpha3.device_class,
    ),
}


class ClaimWatch:
    """The mirrors of claims and of the objects that they refer to; run each of `mirrors` as a task.

    Attributes:
        contexts: the contexts by UID.
        pods: the waiting pods by name.
        claim_mirrors: the mirrors by version.
        context_mirrors: the mirrors by version.
    """

    def __init__(
        self,
        api: client.Client,
        *,
        driver: str,
        versions: frozenset[classic.Version],
        fault: Callable[[str], str | None],
        changed: Callable[[], None],
        gone: Callable[[str], None],
        contained: containment.Containment | None = None,
        recorder: events.Recorder | None = None,
    ) -> None:
        self._contained = contained
        self._recorder = recorder
        self._api = api
        self._driver = driver
        self._fault = fault
        self._changed = changed
        self._gone = gone
        self._claims: dict[_Key, classic.Claim] = {}
        # By device: the claims with an allocation of it. There is at most one, unless another client wrote our
        # allocation.
        self._holders: dict[names.DeviceKey, dict[_Key, classic.Claim]] = {}
        self.contexts: dict[str, classic.Context] = {}
        self.pods: dict[classic.Name, classic.Pod] = {}
        self._classes: dict[tuple[classic.Version, str], classic.Class] = {}
        self._data: dict[classic.Name, Mapping[str, str]] = {}
        # By UID: the claim's version and requests; cleared when a class or parameters change.
        self._wanted: dict[str, tuple[str, claim_requests.ClaimRequests]] = {}
        self.mirrors: dict[str, mirror.Mirror[Any]] = {}
        self.claim_mirrors: dict[classic.Version, mirror.Mirror[Any]] = {}
        self.context_mirrors: dict[classic.Version, mirror.Mirror[Any]] = {}
        for version in sorted(versions):
            form = FORMS[version]
            self.claim_mirrors[version] = self._mirror(
                kinds.CLASSIC_CLAIMS[version], form.claim, functools.partial(self._claim_changed, version)
            )
            self.context_mirrors[version] = self._mirror(
                kinds.SCHEDULING_CONTEXTS[version],
                classic.PodSchedulingContext,
                functools.partial(self._context_changed, version),
            )
            self._mirror(form.class_kind, form.device_class, functools.partial(self._class_changed, version))
        self._mirror(kinds.POD, classic.PodDocument, self._pod_changed, fields=PENDING)
        labels = claim_requests.PARAMETERS_LABEL
        self._mirror(kinds.CONFIG_MAP, classic.ConfigMap, self._data_changed, labels=labels)

    def _mirror(
        self, kind: kinds.Kind, into: Any, changed: _Changed, fields: str = "", labels: str = ""
    ) -> mirror.Mirror[Any]:
        made: mirror.Mirror[Any] = mirror.Mirror(
            self._api,
            kind,
            into=into,
            changed=changed,
            fields=fields,
            labels=labels,
            contained=self._contained,
            recorder=self._recorder,
        )
        self.mirrors[f"{kind.plural}.{kind.version}"] = made
        return made

    def claims(self) -> dict[classic.Name, classic.Claim]:
        """Return the claims of this driver."""
        sources = self._sources()
        by_version = sorted(self._claims.items(), key=lambda item: item[0][0])
        return {name: claim for (_, name), claim in by_version if claim_requests.is_ours(claim, sources)}

    def claim(self, name: classic.Name, uid: str) -> classic.Claim | None:
        """Return the claim of that name and uid, if it exists and is this driver's."""
        for version in self.claim_mirrors:
            claim = self._claims.get((version, name))
            if claim is not None and claim.uid == uid and claim_requests.is_ours(claim, self._sources()):
                return claim
        return None

    def find_requests(
        self, claims: Mapping[classic.Name, classic.Claim]
    ) -> dict[str, claim_requests.ClaimRequests]:
        """Return the requests of the claims, by UID."""
        sources = self._sources()
        fresh: dict[str, tuple[str, claim_requests.ClaimRequests]] = {}
        for claim in claims.values():
            entry = self._wanted.get(claim.uid)
            if entry is None or entry[0] != claim.resource_version:
                entry = claim.resource_version, claim_requests.read_requests(claim, sources)
            fresh[claim.uid] = entry
        self._wanted = fresh
        return {uid: wanted for uid, (_, wanted) in fresh.items()}

    def forget_requests(self) -> None:
        """Have `find_requests` read all claims again: an expression became faulty or valid."""
        self._wanted = {}

    def holders(self, device: names.DeviceKey) -> tuple[classic.Claim, ...]:
        """Return the claims that this driver allocated the device to."""
        return tuple(self._holders.get(device, {}).values())

    def demand(
        self,
        key: names.DeviceKey,
        attachment: attachments.DeviceAttachment | None,
        host_of: Mapping[str, str],
        seen_at: datetime.datetime,
    ) -> claim_index.Demand | None:
        """Return the demand of the claim that the attachment names, while the claim exists.

        Without an attachment, return the demand of a claim with an allocation of the device: its record was lost and is
        written again.
        """
        if attachment is not None:
            spec = attachment.spec
            if spec.claim is None or not spec.allocation_timestamp:
                return None
            name = classic.Name(namespace=spec.claim.namespace, name=spec.claim.name)
            if self.claim(name, spec.claim.uid) is None:
                return None
            return demand(
                spec.claim,
                node=spec.node_name,
                host_id=host_of.get(spec.node_name),
                pool=spec.pool,
                allocated_at=spec.allocation_timestamp,
                seen_at=seen_at,
                has_failed=attachment.status.error is not None,
            )
        for claim in self.holders(key):
            handle = claim.allocation.handle if claim.allocation is not None else None
            if handle is None or claim.going:
                continue
            for device in handle.devices:
                if (device.fabric, device.device) == (key.fabric, key.device):
                    if not handle.allocated_at:
                        return None
                    return demand(
                        reference(claim, device.request, len(handle.devices)),
                        node=handle.node,
                        host_id=host_of.get(handle.node),
                        pool=device.pool,
                        allocated_at=handle.allocated_at,
                        seen_at=seen_at,
                    )
        return None

    def _sources(self) -> claim_requests.Sources:
        return claim_requests.Sources(
            driver=self._driver, classes=self._classes, data=self._data, fault=self._fault
        )

    def _claim_changed(self, version: classic.Version, old: Any, new: Any) -> None:
        key = version, _name(new or old)
        for device in self._devices(self._claims.get(key)):
            self._holders[device].pop(key)
            if not self._holders[device]:
                del self._holders[device]
        if new is None:
            self._claims.pop(key, None)
            self._gone(old.metadata.uid)
        else:
            claim = self._claims[key] = FORMS[version].read_claim(new, self._driver)
            for device in self._devices(claim):
                self._holders.setdefault(device, {})[key] = claim
        self._changed()

    def _devices(self, claim: classic.Claim | None) -> set[names.DeviceKey]:
        """Return the devices that this driver allocated to the claim."""
        allocation = claim.allocation if claim is not None else None
        if allocation is None or allocation.handle is None or allocation.driver != self._driver:
            return set()
        return {
            names.DeviceKey(fabric=device.fabric, device=device.device)
            for device in allocation.handle.devices
        }

    def _context_changed(self, version: classic.Version, old: Any, new: Any) -> None:
        uid = (new or old).metadata.uid
        current = self.contexts.get(uid)
        # If both versions serve a context, it is the same in both.
        if current is None or current.version is version:
            if new is not None:
                self.contexts[uid] = classic.context(new, version)
            elif current is not None:
                del self.contexts[uid]
        self._changed()

    def _pod_changed(self, old: Any, new: Any) -> None:
        if new is None:
            self.pods.pop(_name(old), None)
        else:
            self.pods[_name(new)] = classic.pod(new)
        self._changed()

    def _class_changed(self, version: classic.Version, old: Any, new: Any) -> None:
        key = version, (new or old).metadata.name
        if new is None:
            self._classes.pop(key, None)
        else:
            self._classes[key] = FORMS[version].read_class(new, self._driver)
        self._wanted = {}
        self._changed()

    def _data_changed(self, old: Any, new: Any) -> None:
        if new is None:
            self._data.pop(_name(old), None)
        else:
            self._data[_name(new)] = new.data
        self._wanted = {}
        self._changed()


def _name(document: Any) -> classic.Name:
    return classic.Name(namespace=document.metadata.namespace, name=document.metadata.name)


def demand(
    claim: attachments.ClaimReference,
    *,
    node: str,
    host_id: str | None,
    pool: str,
    allocated_at: str,
    seen_at: datetime.datetime,
    has_failed: bool = False,
) -> claim_index.Demand:
    """Return the demand of a classic claim, whose status has no conditions to set."""
    return claim_index.Demand(
        claim=claim,
        node=node,
        host_id=host_id,
        pool=pool,
        allocation_timestamp=allocated_at,
        seen_at=seen_at,
        attach_reported=True,
        failure_reported=has_failed,
        visible_reported=True,
    )


def reference(claim: classic.Claim, request: str = "", devices: int = 0) -> attachments.ClaimReference:
    """Return the claim in the form of an attachment's reference."""
    return attachments.ClaimReference(
        namespace=claim.name.namespace,
        name=claim.name.name,
        uid=claim.uid,
        requests=(request,) if request else (),
        devices=devices,
    )
