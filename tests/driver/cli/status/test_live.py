"""The cluster kept current by watches is the cluster that is read at once."""

import asyncio

import pytest

from drawbar.driver import errors
from drawbar.driver.cli.status import building, live, reading
from drawbar.driver.kube import client, config, kinds
from drawbar.driver.kube import errors as kube_errors
from drawbar.mocks.cluster import deployment

SECONDS = 30


def test_a_followed_cluster_equals_a_fresh_reading(cluster):
    async def work(api):
        wake = asyncio.Event()
        async with live.following(
            api, driver="drawbar.dev", changed=lambda old, new: wake.set()
        ) as following:
            before = building.build(following.cluster())
            assert before == building.build(await reading.read(api, reading.Target(), driver="drawbar.dev"))
            await api.delete(kinds.ATTACHMENT, "rack-1.gpu-1")
            async with asyncio.timeout(SECONDS):
                while building.build(following.cluster()) == before:
                    wake.clear()
                    await wake.wait()
            after = building.build(following.cluster())
        assert after == building.build(await reading.read(api, reading.Target(), driver="drawbar.dev"))

    cluster(work)


def test_an_unreadable_kind_is_named_until_it_is_readable(drawbar_apiserver):
    async def work():
        wake = asyncio.Event()
        async with (
            client.connecting(config.from_kubeconfig(drawbar_apiserver.kubeconfig)) as api,
            live.following(api, driver="drawbar.dev", changed=lambda old, new: wake.set()) as following,
        ):
            # There are no CRDs.
            (sentence,) = following.cluster().unread
            assert sentence.startswith("fabrics, deviceattachments cannot be read: ")
            assert "install Drawbar's chart" in sentence
            await deployment.apply(api)
            fabric = {
                "apiVersion": kinds.FABRIC.api_version,
                "kind": "Fabric",
                "metadata": {"name": "rack-1"},
                "spec": {"adapter": "grpc", "endpoint": "unix:/run/f.sock"},
            }
            await api.create(kinds.FABRIC, fabric, into=dict)
            async with asyncio.timeout(SECONDS):
                while not following.cluster().fabrics:
                    wake.clear()
                    await wake.wait()
            assert not any(sentence.startswith("fabrics ") for sentence in following.cluster().unread)

    asyncio.run(work())


def test_collections_with_one_reason_share_a_sentence():
    def refuse(plural):
        return kube_errors.Denied(f'GET /api/{plural}: 403 {plural} is forbidden: cannot list "{plural}"')

    def miss(plural):
        return kube_errors.Unreachable(f"GET /api/{plural} got no answer from https://10.0.0.1: refused")

    told = live.describe_problems(
        {
            "fabrics": refuse("fabrics"),
            "events": miss("events"),
            "pods": refuse("pods"),
            "resourceclaims": miss("resourceclaims"),
            "resourceslices": kube_errors.Unreachable("GET /api/resourceslices: 500 broken"),
        }
    )
    assert [sentence.partition(";")[0] for sentence in told] == [
        "fabrics, pods cannot be read: 403 Forbidden",
        "events, resourceclaims cannot be read: https://10.0.0.1 does not answer: refused",
        "resourceslices cannot be read: 500 broken",
    ]
    assert "the right to list and watch fabrics, pods" in told[0]


def test_an_api_server_that_is_gone_is_an_error(drawbar_apiserver, monkeypatch, tmp_path):
    del drawbar_apiserver
    gone = tmp_path / "kubeconfig"
    gone.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\nusers: [{name: u, user: {}}]\n"
    )

    async def work():
        async with (
            client.connecting(config.from_kubeconfig(gone)) as api,
            live.following(api, driver="drawbar.dev", changed=lambda old, new: None),
        ):
            pass

    with pytest.raises(errors.DrawbarError, match="nothing can be read"):
        asyncio.run(work())
