"""docs/fabric-command.md is true: its commands run, and its file is read."""

import re
import shlex
from pathlib import Path

from drawbar.driver.cli.fabric import sources

PAGE = (Path(__file__).parents[4] / "docs" / "fabric-command.md").read_text()


def test_the_commands_of_the_page_run(drawbar_command, cluster, grpc_file, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    monkeypatch.chdir(grpc_file.parent)
    (block,) = re.findall(r"```sh run\n(.*?)```", PAGE, re.DOTALL)
    commands = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert len(commands) >= 7
    for command in commands:
        assert command[:2] == ["drawbar", "fabric"]
        status, out, err = drawbar_command(*command[2:])
        assert status == 0, (command, out, err)
        assert "conformance" in command or err == "", command
        assert out


def test_the_file_of_the_page_is_read(tmp_path, monkeypatch):
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "fabric.yaml").write_text(example.replace("  ca.crt: ca.crt\n", ""))
    (tmp_path / "username").write_text("drawbar\n")
    (tmp_path / "password").write_text("secret\n")
    source = sources.from_file(tmp_path / "fabric.yaml")
    assert source.spec.parameters == {"pollSeconds": "10"}
    assert source.credentials.present_parts == ("username", "password")
