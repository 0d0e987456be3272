"""Tab completes verbs, options and values, in bash, and for kubectl."""

import os
import shutil
import subprocess
import sys

import pytest
from tests.driver.cli.fabric.conftest import cluster as fabric_cluster

from drawbar.driver import main
from drawbar.driver.cli import completion, names
from drawbar.driver.kube import kinds

cluster = fabric_cluster


def list_candidates(*words):
    return set(completion.candidates(main.parser(list(words)), words))


@pytest.mark.parametrize(
    ("words", "some"),
    [
        (("",), {"status", "ui", "taint", "controller", "demo"}),
        (("sta",), {"status"}),
        (("taint", ""), {"preview", "add", "list", "show", "remove"}),
        (("taint", "add", "x", "--eff"), {"--effect"}),
        (("taint", "add", "x", "--effect", ""), {"None", "NoSchedule", "NoExecute"}),
        (("status", "-o", "y"), {"yaml"}),
        (("completion", ""), {"bash", "zsh", "fish"}),
        ((), {"status"}),
    ],
)
def test_verbs_options_and_values_are_offered(words, some):
    assert some <= list_candidates(*words)
    last = words[-1] if words else ""
    assert all(word.startswith(last) for word in list_candidates(*words))


@pytest.mark.parametrize(
    "words", [("status", "--kubeconfig", ""), ("no-such-verb", "x"), ("status", "--zzz")]
)
def test_where_nothing_is_to_be_offered_the_shell_has_its_own_way(words):
    assert list_candidates(*words) & set(main.VERBS) == set()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("explain", "pod/tr"), ("pod", "pod/", "tr")),
        (("status", "fab/"), ("fabric", "fab/", "")),
        (("explain", "po", "tr"), ("pod", "", "tr")),
        (("-n", "pod", "status", "device/rack-1/e"), ("device", "device/", "rack-1/e")),
        (("maintenance", "on", "enclosure/"), ("enclosure", "enclosure/", "")),
        (("fabric", "devices", "ra"), ("fabric", "", "ra")),
        (("fabric", "detach", "gpu-1", "--fabric", ""), ("fabric", "", "")),
        (("taint", "show", ""), ("rule", "", "")),
        (("status", "-n", ""), None),
        (("status", "--a"), None),
        (("status", ""), None),
        (("move", "fabric/"), None),
        (("completion", ""), None),
    ],
)
def test_the_wanted_names_follow_from_the_words(words, wanted):
    found = completion.find_wanted(main.parser(list(words)), words)
    assert found == (
        None if wanted is None else completion.Wanted(kind=wanted[0], before=wanted[1], start=wanted[2])
    )


def test_a_verb_offers_the_kinds_that_it_takes_and_no_others():
    assert {"device/", "enclosure/", "node/"} <= list_candidates("taint", "preview", "")
    assert not {"pod/", "claim/"} & list_candidates("taint", "preview", "")


def run_completion(capsys, *words):
    assert main.complete(list(words)) == 0
    *names, end = capsys.readouterr().out.splitlines()
    return names, end


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Let a reading take as long as a loaded machine needs."""
    monkeypatch.setattr(names, "SECONDS", 120.0)


def test_names_of_objects_are_offered_from_the_cluster(cluster, capsys, monkeypatch):
    at = ("--kubeconfig", str(cluster.kubeconfig))
    assert run_completion(capsys, *at, "status", "fabric/") == (["fabric/rack-1"], ":4")
    assert run_completion(capsys, "status", *at, "no", "n") == (["node-1"], ":4")
    assert run_completion(capsys, "status", *at, "fabric/x") == ([], ":4")
    assert run_completion(capsys, "status", *at, "pod/") == ([], ":4")
    assert run_completion(capsys, "fabric", "hosts", *at, "") == (["rack-1"], ":4")
    assert run_completion(capsys, "explain", "fab") == (["fabric/"], ":6")
    monkeypatch.setattr(names, "SECONDS", 0.0)
    assert run_completion(capsys, *at, "status", "fabric/") == ([], ":4")


def test_devices_and_enclosures_are_offered_by_the_slices(cluster, capsys):
    pool = {"name": "rack-1/enc-1", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": name} for name in ("gpu-1", "gpu-2", "nvme-1")]
    spec = {"driver": "drawbar.dev", "pool": pool, "allNodes": True, "devices": devices}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": spec,
    }
    cluster(lambda api: api.create(kinds.SLICE, body, into=dict))
    at = ("--kubeconfig", str(cluster.kubeconfig))
    assert run_completion(capsys, "explain", *at, "device/gpu") == (["device/gpu-1", "device/gpu-2"], ":4")
    assert run_completion(capsys, "explain", *at, "dev/rack-1/enc-1/n") == (["dev/rack-1/enc-1/nvme-1"], ":4")
    assert run_completion(capsys, "explain", *at, "enclosure/") == (["enclosure/rack-1/enc-1"], ":4")


@pytest.mark.parametrize("words", [("--kubeconfig", "/no/such/file"), ("--context", "no-such")])
def test_without_a_cluster_no_name_and_no_word_of_it_is_printed(words, capsys):
    assert main.complete(["status", *words, "pod/"]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (":4\n", "")


def test_kubectl_gets_the_words_and_offers_no_files(capsys):
    assert main.complete(["stat"]) == 0
    assert capsys.readouterr().out == "status\n:4\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_that_calls_the_program(shell, capsys):
    assert main.main(["completion", shell]) == 0
    assert completion.PROGRAM in capsys.readouterr().out


def test_bash_completes_with_the_script(tmp_path, capsys):
    program = tmp_path / completion.PROGRAM
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom drawbar.driver.main import complete\nsys.exit(complete())\n"
    )
    program.chmod(0o755)
    main.main(["completion", "bash"])
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    ask = f"source {script}; COMP_WORDS=(drawbar taint pre); COMP_CWORD=2; _drawbar; echo ${{COMPREPLY[*]}}"
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        [shutil.which("bash"), "-c", ask],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "preview\n"
