"""`drawbar move` on a mock cluster without daemons: the warning before it, and the refusals."""

import json

import pytest

from drawbar.driver.kube import kinds


def test_the_consequences_are_listed_before_any_change(move_command, with_pod):
    status, out, _ = move_command("train", "--dry-run", "--force", "-o", "json")
    assert status == 0
    assert json.loads(out) == {
        "apiVersion": "cli.drawbar.dev/v1alpha1",
        "kind": "Move",
        "claims": ["default/train"],
        "devices": [{"pool": "rack-1/enc-1", "device": "gpu-1"}],
        "pods": ["train-0"],
        "consequences": [
            "claim default/train leaves rack-1/enc-1/gpu-1, which no claim is given meanwhile",
            "pod train-0 is evicted: it is lost, for no controller makes another",
            "no other device like gpu-1 is free now: the next pod waits for one",
        ],
        "done": False,
        "result": "",
    }
    status, _, err = move_command("train", "--force")
    assert status == 1
    assert "add --yes" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("words", [("train",), ("claim/train",), ("pod", "train-0"), ("default/train",)])
def test_a_pod_without_a_controller_is_not_evicted_without_force(move_command, with_pod, words):
    status, out, err = move_command(*words, "--yes")
    assert (status, out) == (1, "")
    assert "no controller makes another pod in place of train-0" in err
    assert "add --force" in err
    assert with_pod(lambda api: api.list_all(kinds.MAINTENANCE, into=dict)).items == ()


def test_the_api_server_checks_a_dry_run_of_it(move_command, with_pod):
    assert move_command("train", "--force", "--dry-run=server")[0] == 0
    assert with_pod(lambda api: api.list_all(kinds.MAINTENANCE, into=dict)).items == ()
    assert with_pod(lambda api: api.read(kinds.POD, "train-0", into=dict, namespace="default"))


def test_a_timeout_is_reported_with_the_way_back(move_command, with_pod):
    status, _, err = move_command("default/train", "--yes", "--force", "--timeout", "1")
    assert status == 1, "there is no controller that taints"
    assert "evicted: no pod; not evicted: train-0; in maintenance until it is taken out" in err
    assert "drawbar maintenance off device/gpu-1" in err
    assert "not done after 1 s" in err
    (item,) = with_pod(lambda api: api.list_all(kinds.MAINTENANCE, into=dict)).items
    assert item["spec"]["devices"] == ["gpu-1"]
    assert item["spec"]["reason"] == "drawbar move default/train"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("none",), "there is no ResourceClaim none in namespace default"),
        (("next",), "claim default/next has no device of drawbar.dev"),
        (("train",), "no pod uses claim default/train"),
        (("local",), "disk-9 is a device of node node-1 itself"),
        (("train", "--timeout", "0"), "is not a span"),
    ],
)
def test_an_impossible_move_is_refused_with_one_sentence(move_command, cluster, words, sentence):
    status, out, err = move_command(*words, "--yes")
    assert status in (1, 2)
    assert sentence in err
    assert out == ""
