"""The reasons why the first claims without a device wait, for `drawbar status`."""

import asyncio
import contextlib

import msgspec

from drawbar.driver import evaluation
from drawbar.driver.cli.doctor.findings import Unread
from drawbar.driver.cli.doctor.reading import Reader
from drawbar.driver.cli.explain import choices, diagnosis, observed
from drawbar.driver.cli.status import claim_entries, tree
from drawbar.driver.cli.status import observed as status
from drawbar.driver.kube import client, kinds

CLAIMS_MOST = 4
"""The most claims with a reason; the others show the scheduler's message."""


async def with_reasons(
    api: client.Client, shown: tree.Tree, whole: tree.Tree, cluster: status.Cluster
) -> tree.Tree:
    """Return the tree in which the first pending claims show the reason in place of the scheduler's message.

    Args:
        api: the cluster's API server.
        shown: the shown part of the tree.
        whole: the tree of the whole cluster.
        cluster: the state behind the tree.
    """
    pending = [
        claim
        for claim in shown.claims
        if claim.state == "Pending" and claim.waits_for not in (claim_entries.UNUSED, claim_entries.UNTRIED)
    ][:CLAIMS_MOST]
    if not pending:
        return shown
    reader = Reader(api)
    specs = await asyncio.gather(
        *(
            reader.find(kinds.CLAIM, claim.name, into=observed.Claim, namespace=claim.namespace)
            for claim in pending
        )
    )
    reasons: dict[tuple[str, str], str] = {}
    async with contextlib.AsyncExitStack() as stack:
        evaluator = evaluation.Process()
        stack.push_async_callback(evaluator.aclose)
        chooser = choices.Chooser(reader, evaluator, cluster.driver)
        for claim in specs:
            if claim is None or isinstance(claim, Unread):
                continue
            chosen = await chooser.choose(claim, cluster, whole.devices)
            if lack := diagnosis.lack(chosen, cluster.driver):
                reasons[claim.metadata.namespace, claim.metadata.name] = lack
    return msgspec.structs.replace(
        shown,
        claims=tuple(
            msgspec.structs.replace(
                claim, waits_for=reasons.get((claim.namespace, claim.name), claim.waits_for)
            )
            for claim in shown.claims
        ),
    )
