"""PodSchedulingContexts and the pods behind them, whose form is the same in every version that served them.

Source: `resource.k8s.io/v1alpha2` and `v1alpha3` PodSchedulingContext; core `v1` Pod, whose claims stood one level deeper
(`source`) before 1.31.
"""

from drawbar.driver.api import classic, meta

_OVER = frozenset({"Succeeded", "Failed"})


class ContextSpec(meta.Struct, frozen=True):
    """What the scheduler asks."""

    selected_node: str = ""
    potential_nodes: tuple[str, ...] = ()


class SchedulingStatus(meta.Struct, frozen=True):
    """What is known of one claim of the pod."""

    name: str
    unsuitable_nodes: tuple[str, ...] = ()


class ContextStatus(meta.Struct, frozen=True):
    """What the drivers answer."""

    resource_claims: tuple[SchedulingStatus, ...] = ()


class PodSchedulingContext(meta.Struct, frozen=True):
    """A context as it is served."""

    metadata: meta.ObjectMeta
    spec: ContextSpec = ContextSpec()
    status: ContextStatus = ContextStatus()


class ClaimSource(meta.Struct, frozen=True):
    """Where a pod's claim comes from, before 1.31."""

    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodClaim(meta.Struct, frozen=True):
    """A claim of a pod."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None
    source: ClaimSource = ClaimSource()


class PodSpec(meta.Struct, frozen=True):
    """The part of the spec that matters here."""

    resource_claims: tuple[PodClaim, ...] = ()


class PodClaimStatus(meta.Struct, frozen=True):
    """The claim that was made from a template."""

    name: str
    resource_claim_name: str | None = None


class PodStatus(meta.Struct, frozen=True):
    """The part of the status that matters here."""

    phase: str = ""
    resource_claim_statuses: tuple[PodClaimStatus, ...] = ()


class Pod(meta.Struct, frozen=True):
    """A pod as it is served."""

    metadata: meta.ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


def context(found: PodSchedulingContext, version: classic.Version) -> classic.Context:
    """The context."""
    metadata = found.metadata
    return classic.Context(
        version=version,
        name=classic.Name(namespace=metadata.namespace, name=metadata.name),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        pod_uids=tuple(owner.uid for owner in metadata.owner_references if owner.kind == "Pod"),
        selected_node=found.spec.selected_node,
        potential_nodes=found.spec.potential_nodes,
        entries={one.name: one.unsuitable_nodes for one in found.status.resource_claims},
    )


def pod(found: Pod) -> classic.Pod:
    """The pod; a claim from a template of which nothing is told has the name that 1.27 gave it."""
    metadata = found.metadata
    made = {one.name: one.resource_claim_name for one in found.status.resource_claim_statuses}
    named: dict[str, str | None] = {}
    templates = set()
    for one in found.spec.resource_claims:
        direct = one.resource_claim_name or one.source.resource_claim_name
        if direct:
            named[one.name] = direct
            continue
        templates.add(one.name)
        named[one.name] = made.get(one.name, f"{metadata.name}-{one.name}")
    return classic.Pod(
        name=classic.Name(namespace=metadata.namespace, name=metadata.name),
        uid=metadata.uid,
        created=metadata.creation_timestamp or "",
        claims=named,
        from_template=frozenset(templates),
        over=metadata.deletion_timestamp is not None or found.status.phase in _OVER,
    )


def answered(
    known: classic.Context, entries: dict[str, tuple[str, ...]]
) -> dict[str, list[dict[str, object]]]:
    """The status of a context with some entries set; those of other drivers stay as they are."""
    merged = dict(known.entries) | entries
    return {
        "resourceClaims": [
            {"name": name, "unsuitableNodes": list(nodes)} if nodes else {"name": name}
            for name, nodes in merged.items()
        ]
    }
