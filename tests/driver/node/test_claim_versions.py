"""In which versions claims are served, and a claim that is read in whichever of them has it."""

import asyncio
import contextlib
import json

import pytest

from drawbar.driver.api import handles
from drawbar.driver.kube import client, errors, kinds
from drawbar.driver.node import claim_versions
from drawbar.mocks.testing import virtualtime

GROUP = "/apis/resource.k8s.io"
CLAIMS, RULES = ["resourceclaims", "resourceclaims/status"], ["devicetaintrules"]


class ApiServer(client.Client):
    """Serves versions of the group with their resources, and objects by path; `trouble` is raised first, one by one."""

    def __init__(self, **versions):
        self.versions, self.objects, self.trouble, self.asked = versions, {}, [], []

    async def request(self, method, path, query=None, **_options):
        await asyncio.sleep(0)
        self.asked.append(path)
        if self.trouble:
            raise self.trouble.pop(0)
        version = path.removeprefix(f"{GROUP}/")
        if path == GROUP and self.versions:
            answer = {"versions": [{"version": name} for name in self.versions]}
        elif version in self.versions and self.versions[version] is not None:
            answer = {"resources": [{"name": name} for name in self.versions[version]]}
        elif path in self.objects:
            answer = self.objects[path]
        else:
            raise errors.NotFound(f"{path}: 404")
        return json.dumps(answer).encode()

    def put(self, version, uid="u1", name="c1", **status):
        kind = kinds.Kind(
            group="resource.k8s.io", version=version, kind="ResourceClaim", plural="resourceclaims"
        )
        document = {"metadata": {"name": name, "namespace": "default", "uid": uid}, "status": status}
        self.objects[kind.path(namespace="default", name=name)] = document
        listed = self.objects.setdefault(kind.path(), {"metadata": {"resourceVersion": "1"}, "items": []})
        listed["items"].append(document)


def versions(served):
    return [kind.version for kind in served.claims]


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        pytest.param({"v1alpha2": CLAIMS}, ["v1alpha2"], id="1.30"),
        pytest.param({"v1alpha3": CLAIMS}, ["v1alpha3"], id="1.31"),
        pytest.param({"v1alpha2": CLAIMS, "v1alpha3": CLAIMS}, ["v1alpha3", "v1alpha2"], id="both"),
        pytest.param({"v1beta1": CLAIMS, "v1alpha3": RULES}, ["v1beta1"], id="1.32"),
        pytest.param(
            {"v1alpha3": RULES, "v1": CLAIMS, "v2": CLAIMS}, ["v1"], id="1.36, and what is not known"
        ),
        pytest.param({"v1": CLAIMS, "v1alpha3": None}, ["v1"], id="listed and not there"),
        pytest.param({}, [], id="no such group"),
    ],
)
async def test_the_newest_known_version_that_has_claims_comes_first(group, expected):
    served = claim_versions.Served(ApiServer(**group))
    await served.ask()
    assert versions(served) == expected
    assert served.modern.is_set() == ("v1" in expected)


async def test_where_the_question_is_denied_it_is_taken_for_v1():
    api = ApiServer(v1alpha2=CLAIMS)
    api.trouble = [errors.Denied("403")]
    served = claim_versions.Served(api)
    await served.run()
    assert versions(served) == ["v1"]


def test_it_is_asked_again_until_there_is_v1(caplog):
    async def list_versions_after_upgrade():
        api = ApiServer(v1alpha2=CLAIMS)
        api.trouble = [errors.Unreachable("refused")] * 3
        served = claim_versions.Served(api)
        async with asyncio.timeout(3600), asyncio.TaskGroup() as tasks:
            tasks.create_task(served.run())
            await served.known.wait()
            assert versions(served) == ["v1alpha2"]
            await asyncio.sleep(600)
            assert not served.modern.is_set()
            assert len(api.asked) < 50, "an idle daemon asks about once a minute"
            api.versions = {"v1": CLAIMS}
        return versions(served)

    with contextlib.closing(virtualtime.VirtualTimeLoop()) as loop:
        assert loop.run_until_complete(list_versions_after_upgrade()) == ["v1"]
    levels = [record.levelname for record in caplog.records if record.name == claim_versions.__name__]
    assert levels == ["WARNING", "WARNING"], "the failure is logged once, and the missing v1 once"


# --- reading ---


def reader(api):
    return claim_versions.Reader(
        api, driver="drawbar.dev", node_name="n", versions=claim_versions.Served(api)
    )


def make_handle_fields(**fields):
    device = handles.HandleDevice(request="claim", fabric="f", pool="p", device="d1", attachment="f.d1")
    data = handles.encode(handles.Handle(node="n", allocated_at="2026-01-02T03:04:05Z", devices=(device,)))
    return {"allocation": {"resourceHandles": [{"data": data} | fields]}, "driverName": "drawbar.dev"}


@pytest.mark.parametrize(
    "fields", [{"driverName": "drawbar.dev"}, {}], ids=["named", "of the allocating driver"]
)
async def test_a_handle_is_read_as_an_allocation_of_v1(fields):
    api = ApiServer(v1alpha2=CLAIMS)
    api.put("v1alpha2", **make_handle_fields(**fields))
    claim = await reader(api).read("c1", "default")
    assert claim.metadata.uid == "u1"
    (result,) = claim.results("drawbar.dev")
    assert (result.request, result.pool, result.device) == ("claim", "p", "d1")
    assert claim.status.allocation.allocation_timestamp == "2026-01-02T03:04:05Z"


async def test_a_claim_is_gone_only_when_no_version_that_is_served_by_now_has_it():
    api = ApiServer(v1alpha2=CLAIMS)
    claims = reader(api)
    with pytest.raises(errors.NotFound):
        await claims.read("c1", "default")
    api.versions = {"v1alpha2": CLAIMS, "v1alpha3": CLAIMS}
    api.put("v1alpha3", uid="u3")
    assert (await claims.read("c1", "default")).metadata.uid == "u3"


async def test_all_claims_are_those_of_every_version():
    api = ApiServer(v1alpha2=CLAIMS, v1alpha3=CLAIMS)
    api.put("v1alpha2", uid="u2", name="c2")
    api.put("v1alpha3", uid="u2", name="c2")
    api.put("v1alpha3", uid="u3", name="c3")
    assert sorted(name.uid for name in await reader(api).all_names()) == ["u2", "u3"]


async def test_a_cluster_without_claims_is_no_cluster_whose_claims_are_gone():
    with pytest.raises(errors.Unreachable, match="serves claims in no version"):
        await reader(ApiServer()).read("c1", "default")
