"""Reading and writing objects: the common rules of every kind, around the strategies.

Every function runs to its end without waiting, so each request is atomic. A write without a change stores nothing and
keeps the resourceVersion. Objects come in and go out in their stored form, without apiVersion and kind; the HTTP layer
adds these.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from drawbar.mocks.apiserver import (
    errors,
    fieldmanagers,
    garbage,
    kinds,
    outcomes,
    ownership,
    rbac,
)
from drawbar.mocks.apiserver.admissionrules import Attempt
from drawbar.mocks.apiserver.errors import Cause
from drawbar.mocks.apiserver.ledger import Ledger
from drawbar.mocks.apiserver.policies import Policies
from drawbar.mocks.apiserver.profiles import Profile
from drawbar.mocks.apiserver.resources import Catalogue, ResourceType
from drawbar.mocks.apiserver.storage import Store, with_version
from drawbar.mocks.apiserver.strategies import Call
from drawbar.mocks.apiserver.validation import metadata as metadata_rules

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The outcome of a write: the object, and whether it was created or already existed."""

    item: Json
    created: bool = False
    removed: bool = False


class Registry:
    """All reads and writes of one server.

    Attributes:
        ledger: the writes to the store, and their pending consequences.
    """

    def __init__(
        self, store: Store, catalogue: Catalogue, profile: Profile, authorizer: rbac.Authorizer
    ) -> None:
        """Work on ``store`` and serve the resources of ``catalogue``."""
        # Seeded from the process's generator, so that a seeded run repeats its uids.
        self._uids = random.Random(random.getrandbits(64))  # noqa: S311 - names objects, guards nothing
        self.store = store
        self.catalogue = catalogue
        self.profile = profile
        self.authorizer = authorizer
        self.policies = Policies(store, catalogue)
        self.ledger = Ledger(store)

    def find(self, resource: ResourceType, namespace: str, name: str) -> Json:
        """Return the stored object.

        Raises:
            ApiError: 404.
        """
        item = self.store.collection(resource.where).items.get((namespace, name))
        if item is None:
            raise errors.not_found(resource.plural, resource.group, name)
        return item

    def create(self, call: Call, item: Json) -> Written:
        """Create an object under its name, or under a generated one.

        Raises:
            ApiError: 400, 403, 404 (namespace), 409 (name taken) or 422.
        """
        if (item.get("metadata") or {}).get("resourceVersion"):
            raise errors.internal_error("resourceVersion should not be set on objects to be created")
        named = self._ensure_name(call, self._match_namespace(call, item))
        return self._create(call, named, owners=None)

    def update(self, call: Call, item: Json) -> Written:
        """Replace an object, or its status.

        Raises:
            ApiError: 400, 404, 409 (uid or resourceVersion) or 422.
        """
        item = self._match_namespace(call, item)
        metadata = item["metadata"]
        if metadata.get("name") != call.name:
            raise errors.bad_request(
                f"the name of the object ({metadata.get('name', '')}) does not match the name on the URL ({call.name})"
            )
        old = self.store.collection(call.resource.where).items.get((call.namespace, call.name))
        if old is None:
            if not call.resource.create_on_update or call.subresource:
                raise errors.not_found(call.resource.plural, call.resource.group, call.name)
            if metadata.get("resourceVersion"):
                raise self._conflict(call, errors.STALE)
            return self._create(call, item, owners=None)
        if not metadata.get("resourceVersion") and not call.resource.unconditional:
            text = "Invalid value: 0x0: must be specified for an update"
            cause = Cause(field="metadata.resourceVersion", reason="FieldValueInvalid", message=text)
            raise errors.invalid_error(call.resource.kind, call.resource.group, call.name, [cause])
        uid = metadata.get("uid")
        if uid and uid != old["metadata"]["uid"]:
            raise self._conflict(
                call,
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old['metadata']['uid']}",
            )
        return self._replace(call, old, item, owners=None)

    def patch(self, call: Call, change: Callable[[Json], Json]) -> Written:
        """Change an object by a function of its served form.

        Raises:
            ApiError: as for ``update``; a changed uid is 422, as the field is immutable.
        """
        old = self.find(call.resource, call.namespace, call.name)
        shown = call.resource.convert_to_version(old, call.version)
        changed = change(shown)
        if not isinstance(changed.get("metadata"), dict):
            raise errors.bad_request("the patch leaves no object with metadata")
        item = self._match_namespace(call, call.resource.convert_to_stored(changed, call.version))
        return self._replace(call, old, item, owners=None)

    def apply(self, call: Call, config: Json, *, force: bool) -> Written:
        """Apply a configuration; create the object if there is none (not for a subresource).

        Raises:
            ApiError: 400, 404, 409 (conflicts, stale resourceVersion, uid of an absent object), 422 or 500
                (fields outside the schema).
        """
        if (config.get("metadata") or {}).get("managedFields"):
            raise errors.bad_request("metadata.managedFields must be nil")
        config = self._match_namespace(call, outcomes.without_nulls(config))
        metadata = config["metadata"]
        if metadata.setdefault("name", call.name) != call.name:
            raise errors.bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({call.name})"
            )
        old = self.store.collection(call.resource.where).items.get((call.namespace, call.name))
        if old is None:
            return self._apply_new(call, config)
        owners = ownership.read(old["metadata"].get("managedFields"))
        merged, owners = fieldmanagers.apply_configuration(
            call, old, fieldmanagers.own_part(call, config), owners, force=force
        )
        merged = kinds.strategy_for(call.resource, self.profile, self.authorizer, self.store).rewrite_applied(
            merged
        )
        for key in ("uid", "resourceVersion"):
            if metadata.get(key):
                merged = {**merged, "metadata": {**merged["metadata"], key: metadata[key]}}
        return self._replace(call, old, merged, owners=owners)

    def delete(
        self,
        call: Call,
        *,
        grace: int | None = None,
        preconditions: Mapping[str, str] | None = None,
        policy: str = "",
    ) -> Written:
        """Delete an object, or mark it while finalizers or a kubelet still hold it.

        ``policy`` decides about its dependents: ``Orphan``, ``Background`` or ``Foreground``; empty to follow its
        finalizers.

        Raises:
            ApiError: 404, or 409 when a precondition (``uid``, ``resourceVersion``) fails.
        """
        old = self.find(call.resource, call.namespace, call.name)
        self.check_preconditions(call, old, preconditions or {})
        self.admit(call, None, old)
        return self.remove_or_mark(call, old, grace=grace, policy=policy)

    def remove_or_mark(self, call: Call, old: Json, *, grace: int | None = None, policy: str = "") -> Written:
        """Delete a stored object, or mark it."""
        before, old = old, garbage.with_policy(old, policy)
        metadata = old["metadata"]
        seconds = outcomes.grace_seconds(call.resource, old, grace)
        if not metadata.get("finalizers") and not seconds and not self._has_content(call.resource, old):
            last = old if call.dry_run else self.ledger.remove(call.resource, old)
            return Written(item=last, removed=True)
        if metadata.get("deletionTimestamp") and seconds >= metadata.get("deletionGracePeriodSeconds", 0):
            stored = old if old is before or call.dry_run else self.ledger.put(call.resource, old)
            return Written(item=stored)
        marked = {
            **metadata,
            "deletionTimestamp": outcomes.add_seconds(call.now, seconds),
            "deletionGracePeriodSeconds": seconds,
        }
        if "generation" in metadata:
            marked["generation"] = metadata["generation"] + 1
        item = {**old, "metadata": marked}
        if call.resource.where == ("", "namespaces"):
            item["status"] = {**(item.get("status") or {}), "phase": "Terminating"}
        return Written(item=item if call.dry_run else self.ledger.put(call.resource, item))

    def admit(self, call: Call, new: Json | None, old: Json | None) -> None:
        """Check a write against the admission policies; ``new`` is None on a deletion, ``old`` on a creation.

        Raises:
            ApiError: 422 or the policy's own code, a policy refuses the write.
        """
        operation = "CREATE" if old is None else "DELETE" if new is None else "UPDATE"
        attempt = Attempt(call=call, operation=operation, new=new, old=old)
        call.warnings.extend(self.policies.check(attempt))

    def write(self, resource: ResourceType, item: Json) -> Json:
        """Store an object without any checks, for the server itself (bootstrap objects, computed status)."""
        return self.ledger.put(resource, item)

    def finish(self, resource: ResourceType, item: Json) -> None:
        """Remove an object whose last holder is gone."""
        self.ledger.remove(resource, item)

    def release(self, resource: ResourceType, item: Json) -> None:
        """Store an object after removing a finalizer, or remove it if that was the last one."""
        if outcomes.is_removable(resource, item) and not self._has_content(resource, item):
            self.ledger.remove(resource, item)
        else:
            self.ledger.put(resource, item)

    def check_preconditions(self, call: Call, old: Json, preconditions: Mapping[str, str]) -> None:
        """Refuse a delete meant for another object or version.

        Raises:
            ApiError: 409, which names the kind in place of the resource; source: BeforeDelete, k8s.io/apiserver, registry/rest.
        """
        fates = {"UID": "deleted and then recreated", "ResourceVersion": "modified"}
        for key, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            wanted, held = preconditions.get(key), old["metadata"][key]
            if wanted and wanted != held:
                raise errors.conflict(
                    call.resource.kind,
                    call.resource.group,
                    call.name,
                    f"the {label} in the precondition ({wanted}) does not match the {label} in record ({held}). The object "
                    f"might have been {fates[label]}",
                )

    def _create(self, call: Call, item: Json, *, owners: ownership.Owners | None) -> Written:
        resource, where = call.resource, self.store.collection(call.resource.where)
        self._check_namespace(call)
        key = (call.namespace, item["metadata"]["name"])
        if key in where.items:
            raise errors.already_exists(resource.plural, resource.group, key[1])
        metadata = {
            k: v
            for k, v in item["metadata"].items()
            if k not in (*fieldmanagers.SERVER_FIELDS, "managedFields", "resourceVersion")
        }
        metadata |= {
            "uid": str(uuid.UUID(int=self._uids.getrandbits(128), version=4)),
            "creationTimestamp": call.now,
        }
        if call.namespace:
            metadata["namespace"] = call.namespace
        if resource.counts_generation:
            metadata["generation"] = 1
        strategy = kinds.strategy_for(resource, self.profile, self.authorizer, self.store)
        ready = strategy.prepare_create({**item, "metadata": metadata}, call)
        self._refuse(
            call,
            [*metadata_rules.validate(metadata, resource), *strategy.validate_create(ready, call)],
            metadata["name"],
        )
        self.admit(call, ready, None)
        ready = fieldmanagers.update_managed_fields(call, {"metadata": {}}, ready, owners)
        if call.dry_run:
            return Written(item=with_version(ready, self.store.version + 1), created=True)
        return Written(item=self.ledger.put(resource, ready), created=True)

    def _replace(self, call: Call, old: Json, item: Json, *, owners: ownership.Owners | None) -> Written:
        resource = call.resource
        asked = item["metadata"].get("resourceVersion")
        if asked and asked != old["metadata"]["resourceVersion"]:
            raise self._conflict(call, errors.STALE)
        metadata = dict(item["metadata"])
        for key in ("uid", "creationTimestamp", "namespace", "name"):
            if not metadata.get(key) and key in old["metadata"]:
                metadata[key] = old["metadata"][key]
        for key in (
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "resourceVersion",
            "managedFields",
        ):
            metadata.pop(key, None)
            if key in old["metadata"]:
                metadata[key] = old["metadata"][key]
        strategy = kinds.strategy_for(resource, self.profile, self.authorizer, self.store)
        ready = strategy.prepare_update({**item, "metadata": metadata}, old, call)
        causes = [
            *metadata_rules.validate(ready["metadata"], resource),
            *metadata_rules.validate_update(ready["metadata"], old["metadata"]),
            *strategy.validate_update(ready, old, call),
        ]
        self._refuse(call, causes, call.name)
        self.admit(call, ready, old)
        ready = self._update_generation(resource, old, ready)
        ready = fieldmanagers.update_managed_fields(call, old, ready, owners)
        if ready == old:
            return Written(item=old)
        if call.dry_run:
            return Written(item=ready)
        if outcomes.is_removable(resource, ready) and not self._has_content(resource, ready):
            return Written(item=self.ledger.remove(resource, ready), removed=True)
        return Written(item=self.ledger.put(resource, ready))

    def _apply_new(self, call: Call, config: Json) -> Written:
        if call.subresource:
            raise errors.not_found(call.resource.plural, call.resource.group, call.name)
        uid = config["metadata"].get("uid")
        if uid:
            text = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise self._conflict(call, text)
        if config["metadata"].get("resourceVersion"):
            raise self._conflict(call, errors.STALE)
        merged, owners = fieldmanagers.apply_configuration(
            call, {"metadata": {}}, fieldmanagers.own_part(call, config), (), force=True
        )
        return self._create(
            call, {**merged, "metadata": {**merged["metadata"], "name": call.name}}, owners=owners
        )

    def _match_namespace(self, call: Call, item: Json) -> Json:
        """Return a decoded body after checking its namespace."""
        metadata = item.get("metadata") or {}
        namespace = metadata.get("namespace") or ""
        if namespace and namespace != call.namespace:
            raise errors.bad_request(
                f"the namespace of the provided object does not match the namespace sent on the request: "
                f"{namespace} is not {call.namespace or 'the cluster scope'}"
            )
        return {**item, "metadata": metadata}

    def _ensure_name(self, call: Call, item: Json) -> Json:
        metadata = item["metadata"]
        if metadata.get("name"):
            return item
        if not metadata.get("generateName"):
            cause = errors.required_value("metadata.name", "name or generateName is required")
            raise errors.invalid_error(call.resource.kind, call.resource.group, "", [cause])
        taken = self.store.collection(call.resource.where).items
        name = outcomes.generated_name(metadata["generateName"], call.namespace, taken)
        return {**item, "metadata": {**metadata, "name": name}}

    def _check_namespace(self, call: Call) -> None:
        if not call.resource.namespaced:
            return
        space = self.store.collection(("", "namespaces")).items.get(("", call.namespace))
        if space is None:
            raise errors.not_found("namespaces", "", call.namespace)
        if space["metadata"].get("deletionTimestamp"):
            text = (
                f"unable to create new content in namespace {call.namespace} because it is being terminated"
            )
            raise errors.forbidden_error(call.resource.plural, call.resource.group, call.name, text)

    def _refuse(self, call: Call, causes: list[Cause], name: str) -> None:
        if causes:
            raise errors.invalid_error(call.resource.kind, call.resource.group, name, causes)

    def _conflict(self, call: Call, text: str) -> errors.ApiError:
        return errors.conflict(call.resource.plural, call.resource.group, call.name, text)

    def _has_content(self, resource: ResourceType, item: Json) -> bool:
        """Return true if a namespace still has content, which holds it without a finalizer."""
        if resource.where != ("", "namespaces"):
            return False
        name = item["metadata"]["name"]
        return any(
            key[0] == name for collection in self.store.collections().values() for key in collection.items
        )

    def _update_generation(self, resource: ResourceType, old: Json, new: Json) -> Json:
        if not resource.counts_generation or outcomes.content(old, resource) == outcomes.content(
            new, resource
        ):
            return new
        generation = old["metadata"].get("generation", 0) + 1
        return {**new, "metadata": {**new["metadata"], "generation": generation}}
