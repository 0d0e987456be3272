"""The `drawbar` program's entry point."""

import json

import pytest

from drawbar.driver import main


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("help",), ("help", "--help")])
def test_help_lists_the_verbs_in_groups(words, capsys):
    assert main.main(words) == 0
    output = capsys.readouterr().out
    titles = [line for line in output.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == [f"{title}:" for title in (*main.GROUPS, main.DOUBLES)]
    assert all(f"\n  {name} " in output for name in (*main.VERBS, "mock"))


def test_help_and_version_are_verbs(capsys):
    with pytest.raises(SystemExit) as ended:
        main.main(["help", "status"])
    assert ended.value.code == 0
    assert "drawbar status" in capsys.readouterr().out
    assert main.main(["version"]) == 0
    assert capsys.readouterr().out.startswith("drawbar ")


@pytest.mark.parametrize(
    ("words", "moved"),
    [
        (
            ["--kubeconfig", "f", "-n", "a", "status", "pod/x"],
            ["status", "--kubeconfig", "f", "-n", "a", "pod/x"],
        ),
        (["-o", "json", "taint", "list"], ["taint", "list", "-o", "json"]),
        (["--no-color", "doctor"], ["doctor", "--no-color"]),
        (["--context=c", "doctor"], ["doctor", "--context=c"]),
        (["status", "-n", "a"], ["status", "-n", "a"]),
        (["--version"], ["--version"]),
    ],
)
def test_flags_may_stand_before_the_verb(words, moved):
    assert main.verb_first(words) == moved


def test_a_wrong_flag_is_answered_with_the_usage_of_its_verb(capsys):
    with pytest.raises(SystemExit) as ended:
        main.main(["status", "--zzz"])
    assert ended.value.code == 2
    reported = capsys.readouterr().err
    assert "unknown flag or word: --zzz" in reported
    assert "usage: drawbar status" in reported


def test_a_user_error_is_one_sentence_and_a_status(capsys, tmp_path):
    assert main.main(["discover", "--sysfs", str(tmp_path / "none")]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err


def test_a_verb_runs_with_its_options(capsys, tmp_path):
    (tmp_path / "bus").mkdir()
    assert main.main(["discover", "-o", "json", "--sysfs", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["functions"] == []


def test_an_unknown_verb_is_refused_with_status_2(capsys):
    with pytest.raises(SystemExit) as ended:
        main.main(["frobnicate"])
    assert ended.value.code == 2
    assert "frobnicate" in capsys.readouterr().err
