"""What charts hold besides: Deployments, DaemonSets, Services, budgets, quotas, network policies, webhooks.

They are stored, listed, watched, applied and deleted like everything else, so that `helm` and `kubectl` can install
something. Nothing acts on them: no pod is made, nothing is counted, no webhook is called, and a status stays as it was
written. Their fields are not checked.
"""

from __future__ import annotations

from types import MappingProxyType

from drawbar.mocks.apiserver import schemas
from drawbar.mocks.apiserver.resources import ADMISSION_GROUP, ResourceType
from drawbar.mocks.apiserver.schemas import Schema

_TEMPLATED = schemas.record(
    metadata=schemas.METADATA,
    spec=schemas.record(template=schemas.POD),
    status=schemas.record(conditions=schemas.CONDITIONS),
)
_SERVICE = schemas.record(
    metadata=schemas.METADATA, spec=schemas.record(ports=schemas.keyed("port", "protocol"))
)

_NAMED_WEBHOOKS = schemas.record(metadata=schemas.METADATA, webhooks=schemas.keyed("name"))


def _kind(
    group: str,
    kind: str,
    plural: str,
    *short_names: str,
    namespaced: bool = True,
    schema: Schema = schemas.WITH_CONDITIONS,
    subresources: tuple[str, ...] = ("status",),
) -> ResourceType:
    return ResourceType(
        group=group,
        plural=plural,
        singular=kind.lower(),
        kind=kind,
        namespaced=namespaced,
        short_names=short_names,
        subresources=subresources,
        schema=schema,
        counts_generation=True,
        fields=MappingProxyType({}),
    )


WORKLOADS = (
    _kind("apps", "Deployment", "deployments", "deploy", schema=_TEMPLATED),
    _kind("apps", "ReplicaSet", "replicasets", "rs", schema=_TEMPLATED),
    _kind("apps", "DaemonSet", "daemonsets", "ds", schema=_TEMPLATED),
    _kind("", "Service", "services", "svc", schema=_SERVICE),
    _kind("", "ResourceQuota", "resourcequotas", "quota"),
    _kind("policy", "PodDisruptionBudget", "poddisruptionbudgets", "pdb"),
    _kind("networking.k8s.io", "NetworkPolicy", "networkpolicies", "netpol", subresources=()),
    _kind(
        ADMISSION_GROUP,
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        namespaced=False,
        schema=_NAMED_WEBHOOKS,
        subresources=(),
    ),
)
