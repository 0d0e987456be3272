"""The stories of KEP-5055 as an administrator lives them with `drawbar taint`: preview, effect, eviction at a rate, undo."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys

import pytest

from drawbar.driver.controller import expiry
from drawbar.fabric import contract
from drawbar.mocks.apiserver import faults
from drawbar.mocks.scheduler import discovery

# The oldest release with the effect None, which real components are of as well.
OLDEST = {"profile": "1.36", "gates": {"DRADeviceTaintRules": True}}
EVERY_VERSION = pytest.mark.parametrize(
    "server",
    [
        pytest.param(OLDEST, id="v1beta2"),
        pytest.param({"profile": "1.37"}, id="v1"),
        pytest.param({"profile": "kep-5055"}, id="with a rate"),
    ],
)
SELECTOR = ("--driver", "drawbar.dev", "--pool", "fab/enc")


class Failed(Exception):
    """The command ended with another status than 0."""


@contextlib.asynccontextmanager
async def running(cluster, *words):
    """Run `drawbar taint` as the administrator until the block ends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "drawbar.driver.main", "taint", *words, "--kubeconfig", str(cluster.site.admin)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def wait_for_exit(process):
    """Wait for the process to exit; return its status, stdout and stderr."""
    out, err = (printed.decode() for printed in await process.communicate())
    assert "Traceback" not in err
    return process.returncode, out, err


async def taint(cluster, *words):
    """Run `drawbar taint` as the administrator, and return what it printed."""
    status, out, err = await cluster.run_verb(cluster.site.admin, "taint", *words)
    if status:
        raise Failed(status, out, err)
    return out, err


async def document(cluster, *words):
    whole = json.loads((await taint(cluster, *words, "-o", "json"))[0])
    return whole.get("items", whole)


async def rules(cluster):
    kind = await discovery.taint_rules(cluster.api)
    listing = await cluster.api.list_all(kind, into=dict)
    return {rule["metadata"]["name"]: rule["spec"]["taint"]["effect"] for rule in listing.items}


@EVERY_VERSION
async def test_a_safe_eviction_is_previewed_then_runs_in_batches_until_the_last_pod_is_gone_and_is_undone(
    flow_lab, server
):
    async with flow_lab(**server, devices=4) as cluster:
        for name in ("a", "b", "c"):
            await cluster.pod(name)
            await cluster.wait_until_running(name)

        seen = await document(cluster, "preview", "--driver", "drawbar.dev", "--device", "disk-0")
        assert seen["devices"] == ["drawbar.dev/fab/enc/disk-0"]
        assert await rules(cluster) == {}, "a preview changes nothing"
        with pytest.raises(Failed) as refused:
            await taint(cluster, "add", "swap", *SELECTOR, "--yes")
        assert refused.value.args[0] == 2
        assert "all 4 devices" in refused.value.args[2]

        await taint(cluster, "add", "swap", "--all", "--reason", "new supply", "--until", "2h", "--yes")
        shown = await document(cluster, "show", "swap")
        assert shown["rule"]["effect"] == "None"
        assert shown["rule"]["reason"] == "new supply"
        assert shown["preview"]["namespaces"] == [
            {"namespace": "default", "claims": 3, "pods": 3, "evicted": 0, "wouldEvict": 3}
        ]
        await cluster.until(
            lambda: document(cluster, "show", "swap"),
            lambda value: value["rule"]["eviction"] and "3 pods" in value["rule"]["eviction"]["message"],
        )
        assert set(await cluster.pods()) == {"a", "b", "c"}, "effect None evicts no pod"

        await taint(cluster, "add", "swap", "--effect", "NoExecute", "--batch", "1", "--dry-run")
        assert await rules(cluster) == {"swap": "None"}, "a dry run changes nothing"
        _, progress = await taint(cluster, "add", "swap", "--effect", "NoExecute", "--batch", "1", "--yes")
        assert "batch 3 of 3" in progress
        assert await rules(cluster) == {"swap": "NoExecute"}, "the rules of batches are gone"
        await cluster.until(cluster.pods, lambda pods: not pods)

        await taint(cluster, "remove", "swap", "--yes")
        assert await rules(cluster) == {}
        await cluster.pod("d")
        await cluster.wait_until_running("d")


async def test_a_rate_is_kept_by_the_cluster_where_taints_have_one(flow_lab):
    async with flow_lab("kep-5055") as cluster:
        await cluster.pod("a")
        await cluster.wait_until_running("a")
        await taint(cluster, "add", "swap", "--all", "--effect", "NoExecute", "--rate", "2", "--yes")
        assert (
            "a" not in await cluster.pods() or "deletionTimestamp" in (await cluster.pods())["a"]["metadata"]
        )
        kind = await discovery.taint_rules(cluster.api)
        stored = await cluster.api.read(kind, "swap", into=dict)
        assert stored["spec"]["taint"]["evictionsPerSecond"] == 2


NO_EVICTION = faults.Fault(
    select=faults.Selection(verb="delete", resource="pods"), effect=faults.Refusal(code=503)
)


@contextlib.asynccontextmanager
async def stuck(cluster):
    """Run a command that waits in the first of two batches of one pod each, because evictions are refused.

    Evictions work again at the end."""
    for name in ("a", "b"):
        await cluster.pod(name)
        await cluster.wait_until_running(name)
    held = cluster.server.faults.add(NO_EVICTION)
    words = ("add", "swap", "--all", "--effect", "NoExecute", "--batch", "1", "--yes")
    async with running(cluster, *words) as process:
        while "batch 1 of 2" not in (await process.stderr.readline()).decode():
            assert process.returncode is None
        yield process
    held.lift()


async def test_removing_the_rule_stops_the_batches_and_reports_progress(flow_lab):
    async with flow_lab(**OLDEST) as cluster:
        async with stuck(cluster) as process:
            assert sorted((await rules(cluster)).values()) == ["NoExecute", "NoSchedule"]
            await taint(cluster, "remove", "swap", "--yes")
            status, _, report = await wait_for_exit(process)
            assert status == 1
            assert "removed meanwhile" in report
            assert "begun, 1 of 1 rule created: batch 1" in report
            assert "not done: batch 2" in report
            assert await rules(cluster) == {}
            await cluster.until(
                lambda: cluster.notes("DeviceTaintManagerEviction"),
                lambda notes: "Cancelling deletion" in notes,
            )
        assert not any("deletionTimestamp" in pod["metadata"] for pod in (await cluster.pods()).values())


async def test_an_interrupted_command_reports_its_progress_and_can_be_repeated(
    flow_lab,
):
    async with flow_lab(**OLDEST) as cluster:
        async with stuck(cluster) as process:
            process.send_signal(signal.SIGINT)
            status, _, report = await wait_for_exit(process)
            assert status == 130
            assert "done: create DeviceTaintRule swap with effect NoSchedule" in report
            assert "not done: batch 2" in report
            assert "drawbar taint remove swap" in report
            assert sorted((await rules(cluster)).values()) == ["NoExecute", "NoSchedule"]
        await taint(cluster, "add", "swap", "--effect", "NoExecute", "--yes")
        assert await rules(cluster) == {"swap": "NoExecute"}
        await cluster.until(cluster.pods, lambda pods: not pods)


async def test_a_release_without_effect_none_previews_all_the_same_and_names_the_effects(flow_lab):
    gates = {"DRADeviceTaints": True, "DRADeviceBindingConditions": True}
    async with flow_lab("1.34", gates=gates) as cluster:
        await cluster.pod("a")
        await cluster.wait_until_running("a")
        seen = await document(cluster, "preview", "--driver", "drawbar.dev")
        assert [pod["fate"] for pod in seen["pods"]] == ["evicted"]
        with pytest.raises(Failed, match="no effect None"):
            await taint(cluster, "add", "swap", "--all", "--yes")
        await taint(cluster, "add", "swap", "--all", "--effect", "NoExecute", "--yes")
        await cluster.wait_until_gone("a")


@pytest.mark.parametrize("server", [OLDEST, {"profile": "1.37"}], ids=["v1beta2", "v1"])
async def test_a_driver_informs_by_a_taint_and_the_administrator_decides(flow_lab, server):
    async with flow_lab(**server) as cluster:
        await cluster.pod("a")
        (device,) = (await cluster.wait_until_running("a"))[1]
        cluster.fabric.console.set_health(device, contract.Health.WARNING)
        await cluster.wait_for_taints(device, "fabric-health=warning:None")
        (entry,) = await document(cluster, "list", "--devices")
        assert (entry["device"], entry["effect"]) == (f"drawbar.dev/fab/enc/{device}", "None")
        assert "a" in await cluster.pods()
        await taint(cluster, "add", "hot", "--device", device, "--effect", "NoSchedule", "--yes")
        if server is not OLDEST:
            # The scheduler of 1.36 does not see rules.
            await cluster.pod("b")
            assert (await cluster.wait_until_running("b"))[1] != [device]
        assert "deletionTimestamp" not in (await cluster.pods())["a"]["metadata"]
        (listed,) = await document(cluster, "list")
        assert (listed["name"], listed["effect"]) == ("hot", "NoSchedule")
        await taint(cluster, "add", "hot", "--effect", "NoExecute", "--yes")
        await cluster.wait_until_gone("a")


async def test_the_controller_ends_a_rule_whose_time_is_over_with_an_event_and_leaves_all_others(
    flow_lab, monkeypatch
):
    monkeypatch.setattr(expiry, "LOOK_SECONDS", 0.1)
    async with flow_lab(**OLDEST) as cluster:
        for name in ("swap", "keep"):
            await taint(cluster, "add", name, "--all", "--effect", "NoSchedule", "--until", "1h", "--yes")
        kind = await discovery.taint_rules(cluster.api)
        past = {"annotations": {"drawbar.dev/expires-at": "2026-01-01T00:00:00Z"}}
        theirs = {"deviceSelector": {}, "taint": {"key": "example.com/a", "effect": "None"}}
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": theirs}
        await cluster.api.create(kind, body | {"metadata": {"name": "theirs", **past}}, into=dict)
        await cluster.change(kind, "swap", metadata=past)
        await cluster.wait_for_event("TaintRuleExpired", "2026-01-01T00:00:00Z")
        assert await rules(cluster) == {"keep": "NoSchedule", "theirs": "None"}
