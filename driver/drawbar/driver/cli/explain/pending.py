"""The reasons why the first claims without a device wait, for `drawbar status` and the page."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from drawbar.driver import evaluation
from drawbar.driver.cli.doctor.findings import Severity, Unread
from drawbar.driver.cli.doctor.reading import Reader
from drawbar.driver.cli.explain import choices, claim_findings, observed
from drawbar.driver.cli.status import claim_entries, tree
from drawbar.driver.cli.status import observed as status
from drawbar.driver.kube import client, kinds

CLAIMS_MOST = 4
"""The most claims with a reason; the others show the scheduler's message."""


async def find_reasons(
    api: client.Client,
    evaluator: evaluation.Evaluator,
    listed: Iterable[tree.Claim],
    devices: Sequence[tree.Device],
    cluster: status.Cluster,
) -> dict[tuple[str, str], str]:
    """Return the reasons of the first waiting claims, by namespace and name.

    If a device is free for a claim, it has no reason.

    Args:
        api: the cluster's API server.
        evaluator: evaluates the selectors.
        listed: the claims.
        devices: the devices of the whole cluster.
        cluster: the state behind them.
    """
    waiting = _select_waiting(listed)[:CLAIMS_MOST]
    reader = Reader(api)
    specs = await asyncio.gather(
        *(
            reader.find(kinds.CLAIM, claim.name, into=observed.Claim, namespace=claim.namespace)
            for claim in waiting
        )
    )
    chooser = choices.Chooser(reader, evaluator, cluster.driver)
    reasons: dict[tuple[str, str], str] = {}
    for claim in specs:
        if claim is None or isinstance(claim, Unread):
            continue
        chosen = await chooser.choose(claim, cluster, devices)
        if missing := claim_findings.describe_missing(chosen, cluster.driver):
            reasons[claim.metadata.namespace, claim.metadata.name] = missing
    return reasons


def has_waiting(shown: tree.Tree) -> bool:
    """Return whether a shown claim waits for a device that the scheduler did not find."""
    return bool(_select_waiting(shown.claims))


def _select_waiting(listed: Iterable[tree.Claim]) -> list[tree.Claim]:
    return [
        claim
        for claim in listed
        if claim.severity == Severity.WARNING.value and claim.waits_for != claim_entries.UNTRIED
    ]


def give_reasons(
    listed: Iterable[tree.Claim], reasons: Mapping[tuple[str, str], str]
) -> tuple[tree.Claim, ...]:
    """Return the claims, those with a reason with it in place of the scheduler's message."""
    return tuple(
        msgspec.structs.replace(claim, waits_for=reasons[claim.namespace, claim.name])
        if claim.severity and (claim.namespace, claim.name) in reasons
        else claim
        for claim in listed
    )


async def add_reasons(
    api: client.Client, shown: tree.Tree, whole: tree.Tree, cluster: status.Cluster
) -> tree.Tree:
    """Return the tree in which the first waiting claims show the reason.

    Args:
        api: the cluster's API server.
        shown: the shown part of the tree.
        whole: the tree of the whole cluster.
        cluster: the state behind the tree.
    """
    return msgspec.structs.replace(
        shown, claims=give_reasons(shown.claims, await _evaluate(api, shown, whole, cluster))
    )


async def list_explained(
    api: client.Client, whole: tree.Tree, cluster: status.Cluster
) -> tuple[tree.Claim, ...]:
    """Return the first waiting claims that have a reason, each with it."""
    reasons = await _evaluate(api, whole, whole, cluster)
    explained = [claim for claim in whole.claims if (claim.namespace, claim.name) in reasons]
    return give_reasons(explained, reasons)


async def _evaluate(
    api: client.Client, shown: tree.Tree, whole: tree.Tree, cluster: status.Cluster
) -> dict[tuple[str, str], str]:
    if not has_waiting(shown):
        return {}
    evaluator = evaluation.Process()
    try:
        return await find_reasons(api, evaluator, shown.claims, whole.devices, cluster)
    finally:
        await evaluator.aclose()
