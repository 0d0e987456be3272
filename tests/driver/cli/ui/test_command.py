"""`drawbar ui` as a program: its URL, its end, and what a user does wrong."""

import asyncio
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.scenes import waiting

from drawbar.driver import main

SECONDS = 60
DISPLAYS = {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"}
PAGE = (Path(__file__).parents[4] / "docs" / "ui.md").read_text()


@pytest.mark.parametrize("line", re.findall(r"```sh run\n(.*?)\n```", PAGE, re.DOTALL))
def test_the_command_of_the_documentation_prints_a_url_and_ends_by_an_interrupt(cluster, line):
    del cluster
    command = [sys.executable, "-m", "drawbar.driver.main", *shlex.split(line)[1:]]
    environment = {name: value for name, value in os.environ.items() if name not in DISPLAYS}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            assert b"<title>Drawbar</title>" in answer.read()
        with urllib.request.urlopen(url + "updates", timeout=SECONDS) as stream:
            assert b'"gpu-1"' in stream.readline()
            process.send_signal(signal.SIGINT)
            rest, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, rest) == (130, "")
    assert errors == "open the page in a browser of this machine; Ctrl-C ends it\n"


def test_it_opens_the_browser_unless_told_otherwise(cluster, tmp_path):
    del cluster
    opened = tmp_path / "opened"
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    program.chmod(0o755)
    environment = os.environ | {"BROWSER": str(program)}
    environment.pop("SSH_CONNECTION", None)
    for words, sentence in (
        (["--no-open"], "open the page in a browser of this machine"),
        ([], "the page is open in your browser"),
    ):
        command = [sys.executable, "-m", "drawbar.driver.main", "ui", *words]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as process:
            url = process.stdout.readline().strip()
            assert process.stderr.readline() == f"{sentence}; Ctrl-C ends it\n"
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=SECONDS)
        if words:
            assert not opened.exists()
    asyncio.run(waiting.eventually(lambda: opened.exists() and opened.read_text().strip() == url))


def test_a_port_in_use_is_one_sentence(cluster, capsys):
    del cluster
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main.main(["ui", "--port", str(port)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"error: port {port} of 127.0.0.1 is in use; ")
    assert printed.err.count("\n") == 1


def test_without_a_cluster_one_sentence_is_printed(capsys, tmp_path):
    assert main.main(["ui", "--kubeconfig", str(tmp_path / "none")]) in (1, 2)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("port", ["-1", "65536", "http", "9" * 5000])
def test_a_port_that_is_none_is_refused(port, capsys):
    with pytest.raises(SystemExit) as ended:
        main.main(["ui", f"--port={port}"])
    assert ended.value.code == 2
    assert "is not a port" in capsys.readouterr().err
