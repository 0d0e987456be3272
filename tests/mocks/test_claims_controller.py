"""The plan of the claim controller double, beyond the rules of the contract."""

from drawbar.mocks.claims import documents, plan
from drawbar.mocks.kube import meta


def test_a_claim_is_made_once_even_when_the_pod_does_not_know_it_yet() -> None:
    pod = documents.Document(
        metadata=meta.ObjectMeta(name="p", namespace="default", uid="u"),
        spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]},
    )
    made = documents.Document(metadata=meta.ObjectMeta(name="p-gpu-x", namespace="default"))
    templates = {"gpus": documents.Document(metadata=meta.ObjectMeta(name="gpus"))}
    (action,) = plan.for_pod(pod, {"gpu": made}, templates)
    assert action == plan.RecordClaims(statuses=({"name": "gpu", "resourceClaimName": "p-gpu-x"},))
