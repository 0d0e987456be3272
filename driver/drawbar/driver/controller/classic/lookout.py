"""What the API server tells of classic claims, kept current and in neutral form.

Every version that was served at the start is watched; of the releases none serves two. A claim that two served would be
taken in the form in which it names a driver. Of the pods only those that wait are watched, and of the ConfigMaps only
those that are labelled as parameters.
"""

from collections.abc import Callable, Mapping
from typing import Any

from drawbar.driver.api import (
    classic,
    classic_contexts,
    classic_v1alpha2,
    classic_v1alpha3,
    configmaps,
)
from drawbar.driver.controller import names
from drawbar.driver.controller.classic import claim_requests
from drawbar.driver.kube import client, kinds, mirror

PENDING = "status.phase=Pending"
V1ALPHA2, V1ALPHA3 = classic.Version.V1ALPHA2, classic.Version.V1ALPHA3
CLAIMS: Mapping[classic.Version, Any] = {
    V1ALPHA2: classic_v1alpha2.ResourceClaim,
    V1ALPHA3: classic_v1alpha3.ResourceClaim,
}
_Key = tuple[classic.Version, classic.Name]


class Lookout:
    """The watches; run each of `reflectors` as a task."""

    def __init__(
        self,
        api: client.Client,
        *,
        driver: str,
        versions: frozenset[classic.Version],
        fault: Callable[[str], str | None],
        changed: Callable[[], None],
        gone: Callable[[str], None],
    ) -> None:
        self._driver = driver
        self._fault = fault
        self._changed = changed
        self._gone = gone
        self._found: dict[_Key, classic.Claim] = {}
        # By device the claims that it was allocated for: none or one, unless somebody else wrote an allocation of ours.
        self._holders: dict[names.DeviceKey, dict[_Key, classic.Claim]] = {}
        self.contexts: dict[str, classic.Context] = {}
        self.pods: dict[classic.Name, classic.Pod] = {}
        self._classes: dict[tuple[classic.Version, str], classic.Class] = {}
        self._data: dict[classic.Name, Mapping[str, str]] = {}
        # What a claim asks for, by its uid and version; all anew when a class or parameters change.
        self._wanted: dict[str, tuple[str, claim_requests.Wanted]] = {}
        self.claim_reflectors: dict[classic.Version, mirror.Mirror[Any]] = {}
        self.context_reflectors: dict[classic.Version, mirror.Mirror[Any]] = {}
        self.reflectors: dict[str, mirror.Mirror[Any]] = {}
        for version in sorted(versions):
            self._watch_version(api, version)
        self._watch(api, kinds.POD, classic_contexts.Pod, self._pod_changed, fields=PENDING)
        labels = claim_requests.PARAMETERS_LABEL
        self._watch(api, kinds.CONFIG_MAP, configmaps.ConfigMap, self._data_changed, labels=labels)

    def _watch_version(self, api: client.Client, version: classic.Version) -> None:
        def claim_changed(old: Any, new: Any) -> None:
            self._claim_changed(version, old, new)

        def context_changed(old: Any, new: Any) -> None:
            self._context_changed(version, old, new)

        self.claim_reflectors[version] = self._watch(
            api, kinds.CLASSIC_CLAIMS[version], CLAIMS[version], claim_changed
        )
        self.context_reflectors[version] = self._watch(
            api, kinds.SCHEDULING_CONTEXTS[version], classic_contexts.PodSchedulingContext, context_changed
        )
        if version is V1ALPHA2:
            into: Any = classic_v1alpha2.ResourceClass
            self._watch(api, kinds.RESOURCE_CLASS, into, self._resource_class_changed)
        else:
            into = classic_v1alpha3.DeviceClass
            self._watch(api, kinds.CLASSIC_DEVICE_CLASS, into, self._device_class_changed)

    def _watch(
        self,
        api: client.Client,
        kind: kinds.Kind,
        into: Any,
        changed: Callable[[Any, Any], None],
        *,
        fields: str = "",
        labels: str = "",
    ) -> mirror.Mirror[Any]:
        made: mirror.Mirror[Any] = mirror.Mirror(
            api, kind, into=into, changed=changed, fields=fields, labels=labels
        )
        self.reflectors[f"{kind.plural}.{kind.version}"] = made
        return made

    # What is known.

    def claims(self) -> dict[classic.Name, classic.Claim]:
        """The claims of this driver."""
        sources = self._sources()
        found: dict[classic.Name, classic.Claim] = {}
        for (_, name), claim in sorted(self._found.items(), key=_by_version):
            if claim_requests.is_ours(claim, sources):
                found[name] = claim
        return found

    def claim(self, name: classic.Name, uid: str) -> classic.Claim | None:
        """The claim of that name and uid as it is known now."""
        for version in self.claim_reflectors:
            found = self._found.get((version, name))
            if found is not None and found.uid == uid and claim_requests.is_ours(found, self._sources()):
                return found
        return None

    def wanted(self, claims: Mapping[classic.Name, classic.Claim]) -> dict[str, claim_requests.Wanted]:
        """What they ask for, by uid."""
        sources = self._sources()
        fresh: dict[str, tuple[str, claim_requests.Wanted]] = {}
        for claim in claims.values():
            known = self._wanted.get(claim.uid)
            if known is None or known[0] != claim.resource_version:
                known = claim.resource_version, claim_requests.wanted(claim, sources)
            fresh[claim.uid] = known
        self._wanted = fresh
        return {uid: one for uid, (_, one) in fresh.items()}

    def forget_wanted(self) -> None:
        """What is wrong with an expression is known by now, or wrong no more: `wanted` works it all out anew."""
        self._wanted = {}

    def holders(self, device: names.DeviceKey) -> tuple[classic.Claim, ...]:
        """The claims that this driver allocated the device for."""
        return tuple(self._holders.get(device, {}).values())

    def _sources(self) -> claim_requests.Sources:
        return claim_requests.Sources(
            driver=self._driver, classes=self._classes, data=self._data, fault=self._fault
        )

    # What the API server tells.

    def _claim_changed(self, version: classic.Version, old: Any, new: Any) -> None:
        key = version, _name(new or old)
        for device in self._devices(self._found.get(key)):
            self._holders[device].pop(key)
            if not self._holders[device]:
                del self._holders[device]
        if new is None:
            self._found.pop(key, None)
            self._gone(old.metadata.uid)
        else:
            read = classic_v1alpha2.claim if version is V1ALPHA2 else classic_v1alpha3.claim
            self._found[key] = found = read(new, self._driver)
            for device in self._devices(found):
                self._holders.setdefault(device, {})[key] = found
        self._changed()

    def _devices(self, claim: classic.Claim | None) -> set[names.DeviceKey]:
        """What it was given by us."""
        allocation = claim.allocation if claim is not None else None
        if allocation is None or allocation.handle is None or allocation.driver != self._driver:
            return set()
        return {names.DeviceKey(fabric=one.fabric, device=one.device) for one in allocation.handle.devices}

    def _context_changed(self, version: classic.Version, old: Any, new: Any) -> None:
        found = new or old
        known = self.contexts.get(found.metadata.uid)
        if new is not None:
            # One that both versions serve is the same in both.
            if known is None or known.version is version:
                self.contexts[new.metadata.uid] = classic_contexts.context(new, version)
        elif known is not None and known.version is version:
            del self.contexts[found.metadata.uid]
        self._changed()

    def _pod_changed(self, old: Any, new: Any) -> None:
        if new is None:
            self.pods.pop(_name(old), None)
        else:
            self.pods[_name(new)] = classic_contexts.pod(new)
        self._changed()

    def _resource_class_changed(self, old: Any, new: Any) -> None:
        found = classic_v1alpha2.resource_class(new) if new is not None else None
        self._class_changed(V1ALPHA2, (new or old).metadata.name, found)

    def _device_class_changed(self, old: Any, new: Any) -> None:
        found = classic_v1alpha3.device_class(new, self._driver) if new is not None else None
        self._class_changed(V1ALPHA3, (new or old).metadata.name, found)

    def _class_changed(self, version: classic.Version, name: str, found: classic.Class | None) -> None:
        if found is None:
            self._classes.pop((version, name), None)
        else:
            self._classes[version, name] = found
        self._wanted = {}
        self._changed()

    def _data_changed(self, old: Any, new: Any) -> None:
        if new is None:
            self._data.pop(_name(old), None)
        else:
            self._data[_name(new)] = new.data
        self._wanted = {}
        self._changed()


def _name(found: Any) -> classic.Name:
    return classic.Name(namespace=found.metadata.namespace, name=found.metadata.name)


def _by_version(item: tuple[_Key, classic.Claim]) -> str:
    return item[0][0]
