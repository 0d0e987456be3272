"""The CRD of HealthPolicies refuses what cannot be."""

import pytest

from drawbar.driver.kube import client, config, errors, kinds
from drawbar.mocks import apiserver
from drawbar.mocks.cluster import deployment


@pytest.fixture
async def api(tmp_path):
    async with apiserver.serving(profile="1.37") as server:
        connection = config.from_kubeconfig(server.kubeconfig(tmp_path / "admin", "admin"))
        async with client.connecting(connection) as api:
            await deployment.apply(api)
            yield api


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"source": "alert"}, "matchLabels"),
        ({"source": "mail", "matchLabels": {"a": "b"}}, "source"),
        ({"source": "redfish", "minimumHealthyPercent": 101}, "minimumHealthyPercent"),
        ({"source": "redfish", "hold": {"seconds": 3600}, "expireSeconds": 60}, "expireSeconds"),
        ({"source": "redfish", "matchLabels": {str(n): "x" for n in range(17)}}, "matchLabels"),
        ({"source": "redfish", "taint": {"effect": "Reboot"}}, "effect"),
        ({"source": "redfish", "taint": {"evictionsPerSecond": 0}}, "evictionsPerSecond"),
        ({"source": "redfish", "taint": {"evictionsPerSecond": 1001}}, "evictionsPerSecond"),
    ],
)
async def test_a_policy_that_cannot_be_is_refused(api, spec, words):
    document = {
        "apiVersion": "drawbar.dev/v1alpha1",
        "kind": "HealthPolicy",
        "metadata": {"name": "p"},
        "spec": spec,
    }
    with pytest.raises(errors.Invalid, match=words):
        await api.create(kinds.HEALTH_POLICY, document, into=dict)
    fine = document | {"spec": {"source": "redfish"}}
    stored = await api.create(kinds.HEALTH_POLICY, fine, into=dict)
    assert stored["spec"]["taint"] == {"key": "drawbar.dev/health-monitor", "effect": "None"}
