"""`drawbar taint` against an API server alone: output, refusals, and exit statuses."""

import io
import json
from pathlib import Path

import pytest
import yaml
from rich import console

from drawbar.driver.api import meta, slices, taintrules
from drawbar.driver.cli import consent
from drawbar.driver.cli.taint import views
from drawbar.driver.kube import kinds

pytestmark = pytest.mark.drawbar(profile="1.37")
ROOT = Path(__file__).parents[4]
RULES = kinds.TAINT_RULES[0]


def rules(cluster):
    async def list_rules(api):
        return list((await api.list_all(RULES, into=dict)).items)

    return cluster(list_rules)


def test_a_preview_shows_counts_by_namespace_and_examples_and_changes_nothing(taint_command, cluster):
    status, out, err = taint_command("preview", "--pool", "rack-1/enc-1")
    assert (status, err) == (0, "")
    assert "2 published devices and 1 allocated device selected" in out
    assert "evicts 1 of 1 pod, in 1 namespace" in out
    assert "default/train-0" in out
    assert rules(cluster) == []


def test_a_terminal_of_40_columns_shows_all_of_it(taint_command, cluster, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert taint_command("preview", "--pool", "rack-1/enc-1")[0] == 0
    assert taint_command("add", "swap", "--device", "gpu-2", "--reason", "r" * 100, "--yes")[0] == 0
    status, out, _ = taint_command("list")
    assert status == 0
    assert out.count("r") >= 100


def test_a_rule_is_added_listed_shown_changed_and_removed(taint_command, cluster):
    words = ("add", "swap", "--device", "gpu-2", "--reason", "fan", "--until", "2h")
    assert taint_command(*words, "--dry-run")[0] == 0
    assert rules(cluster) == []
    assert taint_command(*words, "--yes")[0] == 0
    (rule,) = rules(cluster)
    assert rule["metadata"]["annotations"]["drawbar.dev/created-by"] == "kubernetes-admin"
    (listed,) = yaml.safe_load(taint_command("list", "-o", "yaml")[1])["items"]
    assert (listed["name"], listed["effect"], listed["reason"]) == ("swap", "None", "fan")
    assert taint_command("add", "swap", "--effect", "NoSchedule", "--until", "never", "--yes")[0] == 0
    shown = json.loads(taint_command("show", "swap", "-o", "json")[1])["rule"]
    assert (shown["effect"], shown["expiresAt"], shown["reason"]) == ("NoSchedule", None, "fan")
    status, out, _ = taint_command("add", "swap", "--effect", "NoSchedule", "--yes")
    assert status == 0
    assert "Nothing to do" in out
    assert json.loads(taint_command("remove", "swap", "--yes", "-o", "json")[1])["done"]
    assert rules(cluster) == []


def test_without_a_terminal_and_without_yes_nothing_is_changed(taint_command, cluster):
    status, _, err = taint_command("add", "swap", "--device", "gpu-2")
    assert status == 1
    assert "nothing was changed" in err
    assert err.count("\n") == 1
    assert rules(cluster) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("add", "swap"), "nothing is selected"),
        (("preview",), "nothing is selected"),
        (("add", "Swap!", "--device", "gpu-1"), "is not the name of a rule"),
        (("add", "swap", "--device", "gpu-1", "--until", "soon"), "--until: give a span"),
        (("add", "swap", "--device", "gpu-1", "--taint", "=x"), "--taint: give KEY"),
        (("add", "swap", "pod/train-0"), "takes no pod: drawbar status pod/NAME"),
        (("add", "swap", "--device", "gpu-1", "--rate", "2", "--batch", "2"), "not allowed with"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_status_2(taint_command, cluster, words, sentence):
    status, out, err = taint_command(*words)
    assert (status, out) == (2, "")
    assert sentence in err


@pytest.mark.parametrize("words", [("--device", "gpu-none"), ("enclosure/rack-1/enc-9",)])
def test_a_rule_that_selects_no_device_is_refused(taint_command, cluster, words):
    status, out, err = taint_command("add", "swap", *words)
    assert (status, out) == (1, "")
    assert "selects no device of the cluster" in err
    assert "usage:" not in err


def add_slice(cluster, driver, pool, device):
    async def make(api):
        body = {
            "apiVersion": kinds.SLICE.api_version,
            "kind": kinds.SLICE.kind,
            "metadata": {"name": f"{driver}-more"},
            "spec": {
                "driver": driver,
                "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
                "allNodes": True,
                "devices": [{"name": device}],
            },
        }
        await api.create(kinds.SLICE, body, into=dict)

    cluster(make)


WHOLE = {"driver": "drawbar.dev", "pool": "rack-1/enc-1"}


@pytest.mark.parametrize(
    ("words", "selector"),
    [
        (("device/gpu-2",), WHOLE | {"device": "gpu-2"}),
        (("--device", "gpu-1"), WHOLE | {"device": "gpu-1"}),
        (("device/rack-1/enc-1/gpu-1",), WHOLE | {"device": "gpu-1"}),
        (("enclosure/rack-1/enc-1",), WHOLE),
        (("--pool", "rack-1/enc-1"), WHOLE),
        (("node/node-1",), {"driver": "gpu.example.com", "pool": "node-1"}),
        (("--driver-name", "drawbar.dev"), {"driver": "drawbar.dev"}),
    ],
)
def test_a_rule_names_driver_and_pool_of_its_devices(taint_command, cluster, words, selector):
    assert taint_command("add", "swap", *words, "--yes")[0] == 0
    (rule,) = rules(cluster)
    assert rule["spec"]["deviceSelector"] == selector
    assert taint_command("add", "swap", *words, "--effect", "NoSchedule", "--yes")[0] == 0


@pytest.mark.parametrize("verb", [("preview",), ("add", "swap")])
def test_a_device_of_several_pools_is_refused_with_their_names(taint_command, cluster, verb):
    add_slice(cluster, "nic.example.com", "node-1", "gpu-1")
    status, out, err = taint_command(*verb, "device/gpu-1")
    assert (status, out) == (1, "")
    assert "give one of device/rack-1/enc-1/gpu-1, device/node-1/gpu-1\n" in err


def test_a_pool_of_several_drivers_is_refused_with_their_names(taint_command, cluster):
    add_slice(cluster, "nic.example.com", "node-1", "gpu-9")
    status, _, err = taint_command("add", "swap", "node/node-1", "--yes")
    assert status == 1
    assert "add one of --driver-name gpu.example.com, --driver-name nic.example.com\n" in err
    status, _, err = taint_command("add", "swap", "device/gpu-9", "--yes")
    assert "device/node-1/gpu-9 --driver-name nic.example.com\n" in err
    words = ("device/node-1/gpu-9", "--driver-name", "nic.example.com")
    assert taint_command("add", "swap", *words, "--yes")[0] == 0
    (rule,) = rules(cluster)
    assert rule["spec"]["deviceSelector"]["driver"] == "nic.example.com"


@pytest.mark.parametrize("action", ["show", "remove"])
def test_a_rule_that_does_not_exist_is_one_sentence(taint_command, cluster, action):
    status, out, err = taint_command(action, "swap")
    assert (status, out) == (1, "")
    assert "there is no DeviceTaintRule swap" in err


@pytest.mark.parametrize(
    ("effect", "sentence", "fate"),
    [
        ("None", "effect None changes nothing (NoExecute would evict 1 of 1 pod)", "stays"),
        ("NoSchedule", "effect NoSchedule evicts no pod and keeps further claims away", "stays"),
        ("NoExecute", "effect NoExecute evicts 1 of 1 pod", "is evicted"),
    ],
)
def test_the_question_shows_the_consequences_of_the_effect(taint_command, cluster, effect, sentence, fate):
    status, out, _ = taint_command(
        "add", "swap", "device/rack-1/enc-1/gpu-1", "--effect", effect, "--dry-run"
    )
    assert status == 0
    assert sentence in out
    [line] = [line for line in out.splitlines() if line.startswith("default/train-0")]
    assert line.rstrip().endswith(fate)


@pytest.fixture
def questions(monkeypatch):
    """The questions before changes; each is answered yes."""
    asked = []

    async def agree(question, *, assumed):
        asked.append(question)

    monkeypatch.setattr(consent, "ask", agree)
    return asked


def test_the_preview_has_taint_effect_end_and_reason_and_the_question_repeats_nothing(
    taint_command, cluster, questions
):
    words = ("add", "psu", "device/gpu-2", "--effect", "NoSchedule")
    _, out, _ = taint_command(*words, "--taint", "a.dev/b=c", "--until", "2h", "--reason", "power supply")
    first = out.splitlines()[0]
    assert first.startswith("DeviceTaintRule psu: taint a.dev/b=c, effect NoSchedule, until 2")
    assert first.endswith('Z, reason "power supply".')
    _, out, _ = taint_command("add", "psu", "--effect", "NoExecute", "--until", "never")
    assert out.startswith('DeviceTaintRule psu: taint a.dev/b=c, effect NoExecute, reason "power supply".\n')
    taint_command("remove", "psu")
    assert questions == [
        "Create the DeviceTaintRule psu?",
        "Change the DeviceTaintRule psu?",
        "Delete the DeviceTaintRule psu? Evicted pods do not come back.",
    ]


def test_the_removal_of_a_rule_that_evicts_no_pod_warns_of_no_eviction(taint_command, cluster, questions):
    assert taint_command("add", "psu", "device/gpu-2", "--effect", "NoSchedule")[0] == 0
    assert taint_command("remove", "psu")[0] == 0
    assert questions[1:] == ["Delete the DeviceTaintRule psu?"]


def test_a_document_on_a_terminal_has_its_preview_in_the_question(taint_command, cluster, questions):
    taint_command("add", "psu", "device/gpu-2", "--effect", "NoSchedule", "-o", "json")
    assert "effect NoSchedule evicts no pod" in questions[0]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("OtherEffect", "none"),
        ("NoEffect", "none"),
        ("PodsPendingEviction", "in progress"),
        ("New", "New"),
    ],
)
def test_the_list_has_words_for_the_reasons_of_an_eviction(reason, words):
    condition = meta.Condition(
        type=taintrules.EVICTION_CONDITION,
        status="False",
        reason=reason,
        message="",
        last_transition_time="2026-01-01T00:00:00Z",
    )
    rule = taintrules.DeviceTaintRule(
        metadata=meta.ObjectMeta(name="psu"),
        spec=taintrules.RuleSpec(taint=slices.Taint(key="a.dev/b", effect="NoSchedule")),
        status=taintrules.RuleStatus(conditions=(condition,)),
    )
    out = console.Console(file=io.StringIO(), width=160)
    views.show_rules(out, views.rules([rule]))
    head, line = out.file.getvalue().splitlines()
    at = head.index("EVICTION")
    assert line[at:].split("  ")[0] == words
    assert views.rules([rule])[0]["eviction"]["reason"] == reason


def test_a_rule_for_devices_that_come_later_takes_a_flag(taint_command, cluster):
    assert taint_command("add", "swap", "--device", "gpu-none", "--yes")[0] == 1
    assert rules(cluster) == []
    full_name = ("device/rack-1/enc-1/gpu-none", "--driver-name", "drawbar.dev")
    assert taint_command("add", "swap", *full_name, "--allow-empty", "--yes")[0] == 0
    [rule] = rules(cluster)
    assert rule["spec"]["deviceSelector"] == {
        "driver": "drawbar.dev",
        "pool": "rack-1/enc-1",
        "device": "gpu-none",
    }


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("device/gpu-77",), "device/POOL/gpu-77 --driver-name NAME"),
        (("device/gpu-77", "--driver-name", "a.dev"), "device/POOL/gpu-77 --driver-name a.dev"),
        (("device/rack-9/gpu-77",), "device/rack-9/gpu-77 --driver-name NAME"),
        (("enclosure/rack-9/enc-1",), "--pool rack-9/enc-1 --driver-name NAME"),
    ],
)
def test_a_rule_for_devices_that_come_later_needs_their_full_name(taint_command, cluster, words, remedy):
    status, _, err = taint_command("add", "swap", *words, "--allow-empty", "--yes")
    assert status == 2
    assert f"give --allow-empty {remedy}" in err
    assert rules(cluster) == []


def test_the_api_server_checks_a_dry_run_of_it(taint_command, cluster):
    words = ("add", "swap", "--device", "gpu-2", "--taint", "example.com/not a key")
    assert taint_command(*words, "--dry-run=server")[0] == 1
    assert taint_command("add", "swap", "--device", "gpu-2", "--dry-run=server")[0] == 0
    assert rules(cluster) == []


def test_a_refusal_of_the_api_server_comes_before_the_question(taint_command, cluster):
    status, out, err = taint_command(
        "add", "swap", "device/p/Not_A_Name", "--driver-name", "drawbar.dev", "--allow-empty"
    )
    assert (status, out) == (1, "")
    assert "spec.deviceSelector.device" in err


def test_a_rule_of_another_origin_is_shown_and_removed_but_not_changed(taint_command, cluster):
    async def make(api):
        body = {
            "apiVersion": RULES.api_version,
            "kind": RULES.kind,
            "metadata": {"name": "theirs"},
            "spec": {"deviceSelector": {}, "taint": {"key": "example.com/a", "effect": "NoSchedule"}},
        }
        await api.create(RULES, body, into=dict)

    cluster(make)
    status, out, _ = taint_command("show", "theirs")
    assert status == 0
    assert "every device of the cluster" in out
    assert taint_command("add", "theirs", "--effect", "None", "--yes")[0] == 2
    assert taint_command("remove", "theirs", "--yes")[0] == 0


@pytest.mark.drawbar(profile="1.36")
def test_a_cluster_without_rules_is_one_sentence_with_the_remedy(taint_command, cluster):
    status, _, err = taint_command("list")
    assert status == 1
    assert "serves no DeviceTaintRules" in err
    assert "drawbar maintenance on device/NAME" in err
    assert taint_command("preview", "--device", "gpu-1")[0] == 0


@pytest.mark.drawbar(profile="1.36", gates={"DRADeviceTaintRules": True})
def test_the_release_whose_scheduler_does_not_see_rules_is_warned_of(taint_command, cluster):
    status, _, err = taint_command("add", "swap", "--device", "gpu-2", "--dry-run")
    assert status == 0
    assert "does not see DeviceTaintRules" in err


def test_a_user_without_rights_gets_one_sentence(taint_command, cluster, drawbar_apiserver):
    status, _, err = taint_command("list", "--kubeconfig", drawbar_apiserver.account("default:guest"))
    assert status == 3
    assert "ask an administrator for the right" in err
    assert "forbidden" in err.lower()


def test_no_cluster_is_one_sentence(taint_command):
    status, _, err = taint_command("list")
    assert status == 2
    assert "no API server is configured" in err


def test_the_role_of_operators_suffices(taint_command, cluster, drawbar_apiserver):
    documents = yaml.safe_load_all((ROOT / "deploy/manifests/operator-rbac.yaml").read_text())
    (role,) = [document for document in documents if document["kind"] == "ClusterRole"]
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "operator"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role["metadata"]["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": "default"}],
    }

    async def bind(api):
        for body in (role, binding):
            plural = f"{body['kind'].lower()}s"
            kind = kinds.Kind(group=group, version="v1", kind=body["kind"], plural=plural, namespaced=False)
            await api.create(kind, body, into=dict)

    cluster(bind)
    operator = ("--kubeconfig", drawbar_apiserver.account("default:operator"))
    for words in (
        ("preview", "--device", "gpu-2"),
        ("add", "swap", "--device", "gpu-2", "--until", "1h", "--yes"),
        ("add", "swap", "--effect", "NoExecute", "--yes"),
        ("list",),
        ("show", "swap"),
        ("remove", "swap", "--yes"),
    ):
        status, _, err = taint_command(*words, *operator)
        assert (status, err) == (0, ""), words
