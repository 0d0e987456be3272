"""The actions of the claim controller for one pod or one claim.

Invariant: the delete-protection finalizer is removed only from a claim that is being deleted or that this controller
deallocates in the same step. Removing it whenever a claim is unreserved would race with the scheduler, which adds it
just before it writes the allocation.

Source: kubernetes/kubernetes pkg/controller/resourceclaim/controller.go, as described by the fact pages.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drawbar.mocks.claims import documents
from drawbar.mocks.kube import kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateClaim:
    """Make a claim from a template for one entry of a pod; `body` is sent as it is."""

    namespace: str
    pod_claim: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordClaims:
    """Write the pod's `status.resourceClaimStatuses`."""

    statuses: tuple[dict[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStatus:
    """Update the claim's status."""

    claim: documents.Document


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFinalizer:
    """Remove the finalizer of a deleted or deallocated claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteClaim:
    """Delete a claim that was made for a pod that is done."""


PodAction = CreateClaim | RecordClaims
ClaimAction = WriteStatus | RemoveFinalizer | DeleteClaim


def for_pod(
    pod: documents.Document,
    owned: Mapping[str, documents.Document],
    templates: Mapping[str, documents.Document],
    api_version: str = kinds.CLAIM.api_version,
) -> tuple[PodAction, ...]:
    """Return the claims to make for a pod, or, once all exist, their names to record.

    Args:
        pod: the pod.
        owned: claims made for this pod, by the name of the pod's entry.
        templates: the templates of its namespace, by name. A missing one is waited for.
        api_version: of the claims to make.
    """
    if documents.is_deleting(pod) or documents.is_finished(pod):
        return ()
    made = [(name, claim, template) for name, claim, template in documents.pod_claims(pod) if template]
    missing = [
        CreateClaim(
            namespace=pod.metadata.namespace,
            pod_claim=name,
            body=_from_template(pod, name, templates[template], api_version),
        )
        for name, _, template in made
        if name not in owned and template in templates
    ]
    if missing:
        return tuple(missing)
    statuses = tuple(
        {"name": name, "resourceClaimName": owned[name].metadata.name} for name, _, _ in made if name in owned
    )
    recorded = tuple(
        {"name": name, "resourceClaimName": claim} for name, claim, _ in made if claim is not None
    )
    return (RecordClaims(statuses=statuses),) if statuses != recorded else ()


def for_claim(
    claim: documents.Document, pods: Collection[documents.Document], *, owner_done: bool
) -> tuple[ClaimAction, ...]:
    """Return the actions for a claim.

    Args:
        claim: the claim.
        pods: those pods of its `reservedFor` that still exist.
        owner_done: whether it was made for a pod that is gone or done.
    """
    actions: list[ClaimAction] = []
    reserved = documents.reserved_for(claim)
    valid = valid_consumers(reserved, pods)
    deleting = documents.is_deleting(claim)
    removed_last = len(valid) < len(reserved) and not valid
    protected = documents.PROTECTION_FINALIZER in claim.metadata.finalizers
    unused = deleting and not valid and documents.allocation(claim) is not None
    # Without the finalizer another component than the scheduler allocated it, and deallocates it.
    deallocate = protected and (removed_last or unused)
    if deallocate:
        # The API server drops the devices of an allocation that goes, but reports it only from 1.33 on.
        actions.append(
            WriteStatus(claim=documents.with_status(claim, allocation=None, reservedFor=None, devices=None))
        )
    elif len(valid) < len(reserved):
        actions.append(WriteStatus(claim=documents.with_status(claim, reservedFor=valid)))
    if protected and not valid and (deleting or deallocate):
        actions.append(RemoveFinalizer())
    if owner_done and not deleting:
        actions.append(DeleteClaim())
    return tuple(actions)


def valid_consumers(
    reserved: Sequence[dict[str, Any]], pods: Collection[documents.Document]
) -> list[dict[str, Any]]:
    """Return the still valid entries of `reservedFor`; `pods` are those of its pods that exist."""
    alive = {pod.metadata.uid for pod in pods if not documents.is_done(pod)}
    # Consumers other than pods are removed by the component that added them.
    return [entry for entry in reserved if entry.get("resource") != "pods" or entry.get("uid") in alive]


def _from_template(
    pod: documents.Document, name: str, template: documents.Document, api_version: str
) -> dict[str, Any]:
    wanted = template.spec.get("metadata") or {}
    annotations = {**(wanted.get("annotations") or {}), documents.POD_CLAIM_ANNOTATION: name}
    return {
        "apiVersion": api_version,
        "kind": kinds.CLAIM.kind,
        "metadata": {
            "generateName": f"{pod.metadata.name}-{name}-",
            "namespace": pod.metadata.namespace,
            "labels": dict(wanted.get("labels") or {}),
            "annotations": annotations,
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": pod.metadata.name,
                    "uid": pod.metadata.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": template.spec.get("spec") or {},
    }
