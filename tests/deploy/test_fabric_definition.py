"""The CRDs refuse what cannot be, and fill in what kubectl shows."""

import pytest

from drawbar.driver.api import attachments, fabrics
from drawbar.driver.kube import client, config, errors, kinds
from drawbar.mocks import apiserver
from drawbar.mocks.cluster import deployment

PAIR = {"name": "pair", "within": "switch", "devices": [{"class": "gpu", "count": 2}]}


@pytest.fixture
async def api(tmp_path):
    async with apiserver.serving(profile="1.36") as server:
        connection = config.from_kubeconfig(server.kubeconfig(tmp_path / "admin", "admin"))
        async with client.connecting(connection) as api:
            await deployment.apply(api)
            yield api


def fabric(*rules):
    return {
        "apiVersion": fabrics.API_VERSION,
        "kind": "Fabric",
        "metadata": {"name": "f"},
        "spec": {"adapter": "grpc", "endpoint": "unix:/s", "compositeRules": list(rules)},
    }


def parts(*listed):
    return PAIR | {"devices": list(listed)}


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        pytest.param([PAIR | {"name": "Pair"}], "name", id="no DNS label"),
        pytest.param([PAIR | {"name": "p" * 55}], "name", id="long name"),
        pytest.param([PAIR, PAIR], "name", id="name twice"),
        pytest.param([PAIR | {"within": "rack"}], "within", id="unknown place"),
        pytest.param([PAIR | {"leftover": "sold"}], "leftover", id="unknown fate"),
        pytest.param([parts()], "devices", id="no devices"),
        pytest.param([parts({"count": 2})], "name a class, a model, or both", id="any device"),
        pytest.param([parts({"class": "gpu"})], "2 to 16 devices", id="one device"),
        pytest.param([parts({"class": "gpu", "count": 17})], "count", id="17 of a class"),
        pytest.param(
            [parts({"class": "gpu", "count": 16}, {"class": "nic"})],
            "2 to 16 devices",
            id="17 of two classes",
        ),
        pytest.param([parts({"class": "toaster", "count": 2})], "class", id="unknown class"),
        pytest.param([parts(*[{"class": "gpu"}] * 5)], "devices", id="five parts"),
        pytest.param(
            [PAIR | {"name": f"p-{number}"} for number in range(17)], "compositeRules", id="17 rules"
        ),
    ],
)
async def test_a_rule_that_cannot_be_is_refused(api, rules, words):
    with pytest.raises(errors.Invalid, match=words):
        await api.create(kinds.FABRIC, fabric(*rules), into=dict)


async def test_a_rule_is_read_with_its_defaults(api):
    rule = PAIR | {"devices": [{"class": "gpu", "model": "H100", "count": 15}, {"class": "nic"}]}
    stored = await api.create(kinds.FABRIC, fabric(rule), into=fabrics.Fabric)
    assert stored.spec.composite_rules == (
        fabrics.CompositeRule(
            name="pair",
            within=fabrics.Within.SWITCH,
            devices=(
                fabrics.CompositePart(device_class="gpu", model="H100", count=15),
                fabrics.CompositePart(device_class="nic", count=1),
            ),
            leftover=fabrics.Leftover.WITHHELD,
        ),
    )


async def test_kubectl_shows_an_attachment_as_pending_until_a_phase_is_written(api):
    identity = {"deviceClass": "gpu"}
    spec = {"fabric": "f", "device": "d", "deviceID": "d", "driver": "drawbar.dev", "pool": "f/e"}
    body = {
        "apiVersion": attachments.API_VERSION,
        "kind": attachments.KIND,
        "metadata": {"name": "f.d"},
        "spec": spec | {"nodeName": "n", "hostID": "h", "identity": identity},
    }
    made = await api.create(kinds.ATTACHMENT, body, into=dict)
    assert made["status"]["phase"] == "Pending"
