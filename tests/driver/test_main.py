"""The `drawbar` program's entry point."""

import json

import pytest

from drawbar.driver import main


def test_help_lists_the_verbs_of_the_driver_and_of_the_mocks(capsys):
    with pytest.raises(SystemExit) as ended:
        main.main(["--help"])
    assert ended.value.code == 0
    output = capsys.readouterr().out
    assert "discover" in output
    assert "mock" in output


def test_what_a_user_can_mend_is_one_sentence_and_a_status(capsys, tmp_path):
    assert main.main(["discover", "--sysfs", str(tmp_path / "none")]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err


def test_a_verb_runs_with_its_options(capsys, tmp_path):
    (tmp_path / "bus").mkdir()
    assert main.main(["discover", "--json", "--sysfs", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["functions"] == []


def test_an_unknown_verb_is_refused_with_status_2(capsys):
    with pytest.raises(SystemExit) as ended:
        main.main(["frobnicate"])
    assert ended.value.code == 2
    assert "frobnicate" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("attach", "gpu-1", "worker-1", "--fabric", "rack-1", "--yes"),
        ("attach", "--model", "A100", "--host", "worker-1", "--config", "fabric.yaml"),
        ("detach", "gpu-1", "--fabric", "rack-1", "--force"),
    ],
)
def test_attach_and_detach_are_actions_of_fabric_under_shorter_names(words):
    short, long = (vars(main.parser(line).parse_args(line)) for line in (words, ("fabric", *words)))
    assert short.pop("command").run is long.pop("command").run
    assert short == long
