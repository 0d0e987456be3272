"""The chart under Argo CD and Flux: it renders the same text each time, and asks the cluster for nothing."""

import re

import pytest
from tests.deploy.conftest import CHART

pytestmark = pytest.mark.tool("chart")
EVERYTHING = {
    "webhook": {"enabled": True},
    "healthMonitor": {"enabled": True, "tlsSecretName": "tls", "tokenSecretName": "token"},
    "networkPolicy": {
        "apiServerCIDRs": ["10.0.0.1/32"],
        "healthMonitorFrom": [{"namespaceSelector": {}}],
        "collector": [{"to": [{"namespaceSelector": {}}]}],
    },
    "tracing": {"enabled": True, "endpoint": "http://collector:4318"},
    "simulation": {"enabled": True},
    "metrics": {
        "enabled": True,
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
    },
}


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["the default", "everything"])
async def test_rendered_twice_it_is_the_same_text(render_text, values):
    assert await render_text(**values) == await render_text(**values)


def test_no_template_asks_the_cluster_or_makes_a_secret_by_chance():
    wrong = re.compile(r"\b(lookup|gen[A-Z]\w+|rand[A-Z]\w+|uuidv4|htpasswd)\b")
    for file in CHART.glob("templates/*"):
        calls = [
            match[1]
            for part in re.findall(r"{{.*?}}", file.read_text(), re.DOTALL)
            for match in wrong.finditer(part)
        ]
        assert calls == [], file.name
