"""How fast pods go where taints have `evictionsPerSecond` (KEP-5055), and that nothing slows them where they have not."""

import datetime

import pytest
from tests.scenes import waiting

from drawbar.driver.kube import client, config, kinds
from drawbar.mocks import apiserver, eviction
from drawbar.mocks.eviction import rates
from drawbar.mocks.scheduler import discovery, objects

T = datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.UTC)
PODS = rates.BURST + 4


def limit(name="broken", rate=None, usual=rates.USUAL, **since):
    taint = objects.Taint(key=name, effect="NoExecute", evictions_per_second=rate)
    driver_limit = rates.driver_limit("drawbar.dev", taint, usual)
    return rates.Limit(taint=driver_limit.taint, per_second=driver_limit.per_second, **since)


def count_evictions(limiters, limits, seconds):
    """Return how many pods go within that time when as many as can be are waiting."""
    total, at = 0, 0.0
    while at <= seconds:
        pause = limiters.pause(limits, T + datetime.timedelta(seconds=at))
        total += pause == 0
        at += pause
    return total


@pytest.mark.parametrize(("rate", "expected"), [(None, 10 + 10 * 4), (2, 10 + 2 * 4), (100, 10 + 100 * 4)])
def test_the_first_ten_go_at_once_and_the_others_at_the_rate_of_the_taint(rate, expected):
    assert count_evictions(rates.Rates(), [limit(rate=rate)], 4) == pytest.approx(expected, abs=1)


def test_a_pod_with_several_reasons_goes_as_the_fastest_of_them_lets_it():
    both = [limit("slow", 1), limit("fast", 50)]
    assert count_evictions(rates.Rates(), both, 4) == pytest.approx(10 + 10 + 50 * 4 + 4, abs=2)


def test_taints_have_limiters_of_their_own_and_a_reason_that_is_not_due_lets_nobody_go():
    limiters = rates.Rates()
    assert [limiters.pause([limit("a", 1)], T) for _ in range(11)][-1] == pytest.approx(1.0)
    assert limiters.pause([limit("b", 1)], T) == 0
    later = limit("c", 1, since=T + datetime.timedelta(seconds=5))
    assert limiters.pause([limit("a", 1), later], T) == pytest.approx(1.0)


def test_a_limiter_that_has_been_idle_is_forgotten():
    limiters = rates.Rates()
    for number in range(50):
        limiters.pause([limit(f"k{number}", 1)], T + datetime.timedelta(seconds=2 * number))
    assert len(limiters._limiters) <= 2


def test_where_taints_have_no_rates_nothing_is_limited():
    assert rates.driver_limit("d", objects.Taint(key="k"), None) is None
    assert rates.rule_limit("uid", objects.Taint(key="k"), None) is None


async def world(api, profile):
    """Create a pool whose devices have been lost, and a pod on each of them."""
    names = [f"p{number}" for number in range(PODS)]
    stamp = "2026-01-01T12:00:00Z"
    mark = {
        "key": "drawbar.dev/device-lost",
        "effect": "NoExecute",
        "timeAdded": stamp,
        "evictionsPerSecond": 1,
    }
    other = {"key": "drawbar.dev/other", "effect": "NoExecute", "timeAdded": stamp}
    taints = dict.fromkeys(names, mark) | {"last": other}
    bare = profile != "kep-5055"
    devices = [{"name": name, **({"taints": [taints[name]]} if bare else {})} for name in taints]
    entries = [{"device": name, "taint": taint} for name, taint in taints.items()]
    for number, held in enumerate([{"devices": devices}, *([] if bare else [{"taints": entries}])]):
        spec = {
            "driver": "drawbar.dev",
            "pool": {"name": "chassis", "generation": 1, "resourceSliceCount": 1 if bare else 2},
            "allNodes": True,
            **held,
        }
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"s{number}"},
        }
        await api.create(kinds.SLICE, body | {"spec": spec}, into=dict)
    for name in names:
        await create_running_pod(api, name)


async def create_running_pod(api, name):
    spec = {
        "containers": [{"name": "main", "image": "none"}],
        "resourceClaims": [{"name": "one", "resourceClaimName": name}],
        "nodeName": "node-a",
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    made = await api.create(kinds.POD, pod, namespace="default", into=dict)
    requests = [{"name": "one", "exactly": {"deviceClassName": "any"}}]
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": requests}},
    }
    await api.create(kinds.CLAIM, claim, namespace="default", into=dict)
    result = {"request": "one", "driver": "drawbar.dev", "pool": "chassis", "device": name}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": made["metadata"]["uid"]}],
    }
    await api.patch(
        kinds.CLAIM,
        name,
        {"status": status},
        content=client.Patch.MERGE,
        into=dict,
        namespace="default",
        subresource="status",
    )


@pytest.mark.parametrize("profile", ["1.36", "1.37", "kep-5055"])
async def test_the_eviction_double_honours_the_rate_where_there_is_one(tmp_path, profile):
    clock = waiting.Clock(T)
    async with apiserver.serving(profile=profile) as server:
        connection = config.from_kubeconfig(server.kubeconfig(tmp_path / "kubeconfig"))
        async with client.connecting(connection) as api:
            limited = profile == "kep-5055"
            assert await discovery.eviction_rates(api) == limited
            await world(api, profile)

            async def list_terminating_pods():
                listing = await api.list_all(kinds.POD, into=dict, namespace="default")
                return {
                    pod["metadata"]["name"]
                    for pod in listing.items
                    if pod["metadata"].get("deletionTimestamp")
                }

            async with eviction.serving(connection, clock=clock):
                first = rates.BURST if limited else PODS
                await waiting.until(list_terminating_pods, lambda names: len(names) >= first)
                # Whatever was due before this one has been looked at by then.
                await create_running_pod(api, "last")
                await waiting.until(list_terminating_pods, lambda names: "last" in names)
                assert len(await list_terminating_pods()) == first + 1
                clock.now += datetime.timedelta(seconds=PODS)
                await waiting.until(list_terminating_pods, lambda names: len(names) == PODS + 1)
