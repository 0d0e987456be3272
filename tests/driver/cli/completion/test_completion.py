"""Tab completes verbs, options and values, in bash, and for kubectl."""

import os
import shutil
import subprocess
import sys

import pytest

from drawbar.driver import main
from drawbar.driver.cli import completion


def offered(*words):
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
    assert some <= offered(*words)
    last = words[-1] if words else ""
    assert all(word.startswith(last) for word in offered(*words))


@pytest.mark.parametrize(
    "words", [("status", "--kubeconfig", ""), ("no-such-verb", "x"), ("status", "--zzz")]
)
def test_where_nothing_is_to_be_offered_the_shell_has_its_own_way(words):
    assert offered(*words) & set(main.VERBS) == set()


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
