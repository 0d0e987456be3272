"""The administrator's command: its output, and its bounds."""

import pytest

from drawbar.driver.healthmonitor import program


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "command"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    return write


async def test_its_output_is_given_and_its_environment_is_almost_empty(script, monkeypatch):
    monkeypatch.setenv("SECRET", "x")
    path = script('echo "secret: $SECRET"; cat')
    assert await program.output(path, timeout_seconds=30) == b"secret: \n"


@pytest.mark.parametrize(
    ("text", "seconds", "words"),
    [
        ("echo '{}'; exit 3", 30, "ended with status 3"),
        ("sleep 1000", 0.2, "was killed after 0.2 s"),
        ("(trap '' TERM; sleep 1000) & wait", 0.2, "was killed"),
        ("exec head -c 2000000 /dev/zero", 30, "more than 1048576 bytes"),
        ("exec cat /dev/zero", 30, "more than 1048576 bytes"),
    ],
    ids=["fails", "hangs", "has children that hang", "writes too much", "writes without end"],
)
async def test_a_run_beyond_its_bounds_is_one_sentence(script, text, seconds, words):
    with pytest.raises(program.Failed, match=words):
        await program.output(script(text), timeout_seconds=seconds)


async def test_what_cannot_be_run_is_one_sentence(tmp_path):
    with pytest.raises(program.Failed, match="is it an executable file"):
        await program.output(tmp_path / "no", timeout_seconds=1)
    (tmp_path / "text").write_text("x")
    with pytest.raises(program.Failed, match="is it an executable file"):
        await program.output(tmp_path / "text", timeout_seconds=1)
