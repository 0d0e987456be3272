"""The health monitor of the chart: one restricted pod, open to those alone that are named, and never without authentication."""

import re

import pytest
import yaml

from drawbar.mocks.testing import helm

pytestmark = pytest.mark.tool("chart")
NAME = "drawbar-health-monitor"


@pytest.fixture
def values(pytestconfig):
    page = (pytestconfig.rootpath / "docs" / "health-monitor.md").read_text()
    return yaml.safe_load(re.findall(r"```yaml values\n(.*?)```", page, re.DOTALL)[0])


def index_documents(documents):
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}


async def test_by_default_there_is_none(render):
    assert [item for item in await render() if NAME in item["metadata"]["name"]] == []


@pytest.mark.parametrize("changes", [{}, {"metrics": {"enabled": True}}])
async def test_the_values_of_the_page_make_one_restricted_pod(render, values, changes):
    documents = index_documents(await render(**values | changes))
    deployment = documents["Deployment", NAME]["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    pod = deployment["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert len(pod["containers"]) == 1 + bool(changes)
    for container in pod["containers"]:
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    policy = documents["NetworkPolicy", NAME]["spec"]
    peers = values["networkPolicy"]["healthMonitorFrom"]
    assert policy["ingress"][0] == {"ports": [{"port": 9444, "protocol": "TCP"}], "from": peers}
    file = documents["ConfigMap", NAME]["data"]["health-monitor.yaml"]
    assert yaml.safe_load(file)["tokenFile"] == "/run/drawbar/token/token"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"healthMonitor": {"tokenSecretName": ""}}, "anyone could send"),
        ({"healthMonitor": {"tlsSecretName": ""}}, "tlsSecretName is empty"),
        ({"networkPolicy": {"healthMonitorFrom": []}}, "healthMonitorFrom"),
    ],
)
async def test_it_is_open_to_no_one_who_is_not_named(render, values, wrong, words):
    changed = {topic: content | wrong.get(topic, {}) for topic, content in values.items()}
    with pytest.raises(helm.HelmError, match=words):
        await render(**changed)
