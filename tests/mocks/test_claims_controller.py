"""The claim controller double against the API server double, over HTTP; and its plan alone."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.scenes import clusters

from drawbar.driver.kube import kinds
from drawbar.mocks import claims
from drawbar.mocks.claims import documents, plan
from drawbar.mocks.kube import meta

PROTECTION = "resource.kubernetes.io/delete-protection"
Json = dict[str, Any]
RESULT = {"request": "one", "driver": "drawbar.dev", "pool": "chassis-1", "device": "slot-1"}
ALLOCATION = {"devices": {"results": [RESULT]}}
SPEC = {"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": "any"}}]}}


class Cluster(clusters.Cluster):
    async def pod(self, name: str, **claim: str) -> Json:
        spec = {
            "containers": [{"name": "main", "image": "none"}],
            "resourceClaims": [{"name": "gpu", **claim}],
        }
        return await self.create(kinds.POD, name, spec=spec)

    async def create_allocated_claim(self, name: str, *pods: Json) -> None:
        """Create a claim as the scheduler leaves it, reserved for these pods."""
        await self.create(kinds.CLAIM, name, spec=SPEC, metadata={"finalizers": [PROTECTION]})
        reserved = [_consumer(pod) for pod in pods]
        await self.set_status(kinds.CLAIM, name, {"allocation": ALLOCATION, "reservedFor": reserved})


def _consumer(pod: Json) -> Json:
    metadata = pod["metadata"]
    return {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with clusters.serving(tmp_path, Cluster) as made, claims.serving(made.connection):
        yield made


async def test_a_finished_pod_leaves_the_claim_to_the_others(cluster: Cluster) -> None:
    first = await cluster.pod("p1", resourceClaimName="c1")
    second = await cluster.pod("p2", resourceClaimName="c1")
    await cluster.create_allocated_claim("c1", first, second)
    await cluster.set_status(kinds.POD, "p1", {"phase": "Succeeded"})
    (claim,) = await cluster.until(
        kinds.CLAIM, lambda claims: len(claims[0]["status"].get("reservedFor", ())) == 1 and claims
    )
    assert claim["status"]["reservedFor"] == [_consumer(second)]
    assert claim["status"]["allocation"]


def _claim(*, reserved: list[Json], deleting: bool = False, allocated: bool = True) -> documents.Document:
    return documents.Document(
        metadata=meta.ObjectMeta(
            name="c1",
            namespace="default",
            finalizers=(PROTECTION,),
            deletion_timestamp="2026-01-01T00:00:00Z" if deleting else None,
        ),
        status={"reservedFor": reserved} | ({"allocation": ALLOCATION} if allocated else {}),
    )


def _pod(uid: str, **status: Any) -> documents.Document:
    return documents.Document(metadata=meta.ObjectMeta(name=uid, namespace="default", uid=uid), status=status)


ONE = {"resource": "pods", "name": "one", "uid": "one"}
OTHER = {"resource": "jobs", "apiGroup": "batch", "name": "two", "uid": "two"}


@pytest.mark.parametrize(
    ("claim", "pods", "actions"),
    [
        pytest.param(_claim(reserved=[ONE]), [_pod("one")], [], id="in-use"),
        pytest.param(
            _claim(reserved=[ONE]), [], [plan.WriteStatus, plan.RemoveFinalizer], id="last-consumer-gone"
        ),
        pytest.param(_claim(reserved=[ONE, OTHER]), [], [plan.WriteStatus], id="a-consumer-that-is-no-pod"),
        pytest.param(_claim(reserved=[]), [], [], id="unreserved-by-the-scheduler-stays-allocated"),
        pytest.param(
            _claim(reserved=[], allocated=False), [], [], id="the-finalizer-just-added-by-the-scheduler-stays"
        ),
        pytest.param(
            _claim(reserved=[], deleting=True),
            [],
            [plan.WriteStatus, plan.RemoveFinalizer],
            id="deleted-and-unreserved",
        ),
        pytest.param(_claim(reserved=[ONE], deleting=True), [_pod("one")], [], id="deleted-but-in-use"),
    ],
)
def test_a_claim_gets_exactly_these_actions(
    claim: documents.Document, pods: list[documents.Document], actions: list[type]
) -> None:
    planned = plan.for_claim(claim, pods, owner_done=False)
    assert [type(action) for action in planned] == actions


def test_a_claim_is_made_once_even_when_the_pod_does_not_know_it_yet() -> None:
    pod = documents.Document(
        metadata=meta.ObjectMeta(name="p", namespace="default", uid="u"),
        spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]},
    )
    made = documents.Document(metadata=meta.ObjectMeta(name="p-gpu-x", namespace="default"))
    templates = {"gpus": documents.Document(metadata=meta.ObjectMeta(name="gpus"))}
    (action,) = plan.for_pod(pod, {"gpu": made}, templates)
    assert action == plan.RecordClaims(statuses=({"name": "gpu", "resourceClaimName": "p-gpu-x"},))
