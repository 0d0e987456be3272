"""Programs that log in, good and bad."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.scenes import waiting

from drawbar.driver.kube import credential_plugins, errors

VERSION = "client.authentication.k8s.io/v1"
TOKEN = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}'


def program(folder, text):
    file = folder / "login"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


def run(command, *, folder=Path("/"), cluster=None, seconds=30.0, **more):
    plugin = credential_plugins.Plugin(api_version=VERSION, command=command, **more)
    return credential_plugins.run(plugin, folder, cluster or {}, limit_seconds=seconds)


def test_the_program_gets_its_arguments_variables_and_requested_information(tmp_path):
    shown = tmp_path / "shown"
    command = program(tmp_path, f"echo \"$1 $PLACE $KUBERNETES_EXEC_INFO\" > {shown}; echo '{TOKEN}'")
    variables = (credential_plugins.Variable(name="PLACE", value="here"),)
    cluster = {"server": "https://s"}
    credentials = run(command, args=("one",), env=variables, provide_cluster_info=True, cluster=cluster)
    assert credentials.token == "t"
    spec = '{"interactive":false,"cluster":{"server":"https://s"}}'
    assert (
        shown.read_text() == f'one here {{"apiVersion":"{VERSION}","kind":"ExecCredential","spec":{spec}}}\n'
    )
    run(command, cluster=cluster)
    assert "https://s" not in shown.read_text()


def test_null_is_an_absent_field_as_in_kubectl(tmp_path):
    status = '{"token":"t","clientCertificateData":null,"clientKeyData":null,"expirationTimestamp":null}'
    answer = f'{{"apiVersion":"{VERSION}","kind":"ExecCredential","spec":null,"status":{status}}}'
    assert run(program(tmp_path, f"echo '{answer}'")).token == "t"


def test_a_command_with_a_slash_lies_beside_the_kubeconfig_and_one_without_in_the_path(tmp_path, monkeypatch):
    program(tmp_path, f"echo '{TOKEN}'")
    assert run("./login", folder=tmp_path).token == "t"
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert run("login").token == "t"


BAD = {
    "fails": (
        "echo 'no session: log in' >&2; exit 3",
        r"ended with 3 \(no session: log in\): run it by hand",
    ),
    "fails-with-much-to-read": (
        "head -c 9000000 /dev/zero | tr '\\0' x >&2; exit 3",
        r"ended with 3 \(x{300}\)",
    ),
    "prints-control-characters": ("printf '\\033[31mred' >&2; exit 3", r"\(\?\[31mred\)"),
    "prints-nothing": ("true", "printed no ExecCredential"),
    "prints-nonsense": ("echo '{{{'", "printed no ExecCredential"),
    "prints-bytes": ("head -c 1000 /dev/urandom", "printed no ExecCredential"),
    "prints-nested-lists": ("head -c 900000 /dev/zero | tr '\\0' '['", "printed no ExecCredential"),
    "prints-1-GB": ("head -c 1000000000 /dev/zero", "printed more than 1 MiB"),
    "prints-another-version": (f"echo '{TOKEN}' | sed 's,/v1,/v2,'", f"no ExecCredential of {VERSION}"),
    "prints-no-credential": (
        f"echo '{TOKEN}' | sed 's,\"token\":\"t\",,'",
        "neither a token nor a certificate",
    ),
    "prints-a-key-alone": (f"echo '{TOKEN}' | sed 's,token,clientKeyData,'", "not together"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_program_that_does_not_log_in_is_one_sentence_with_its_name(tmp_path, case):
    text, words = BAD[case]
    command = program(tmp_path, text)
    with pytest.raises(errors.ConfigError, match=words) as refused:
        run(command)
    assert command in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 600


def is_running(pid):
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_a_program_that_hangs_is_ended_with_the_programs_that_it_started(tmp_path):
    children = tmp_path / "children"
    command = program(tmp_path, f"sleep 600 & echo $! > {children}; wait")
    before = time.monotonic()
    with pytest.raises(errors.ConfigError, match="did not end within 1 s"):
        run(command, seconds=1.0)
    assert time.monotonic() - before < waiting.PATIENCE_SECONDS
    await waiting.eventually(lambda: not is_running(children.read_text().strip()))


def test_a_program_that_leaves_another_running_does_not_keep_the_caller(tmp_path):
    command = program(tmp_path, f"sleep 600 >/dev/null & echo $! > {tmp_path / 'pid'}; echo '{TOKEN}'")
    assert run(command).token == "t"
    os.kill(int((tmp_path / "pid").read_text()), 9)


def test_the_hint_how_to_install_a_missing_program_is_printed():
    with pytest.raises(errors.ConfigError, match=r"no-such-login is not installed: brew install it \?\[0m"):
        run("no-such-login", install_hint="brew install it\n\x1b[0m")
    with pytest.raises(errors.ConfigError, match="not installed: install it, or correct PATH"):
        run("no-such-login")


def test_a_program_that_cannot_be_started_is_named_with_the_reason(tmp_path):
    file = tmp_path / "login"
    file.write_bytes(b"\x00\x01")
    with pytest.raises(errors.ConfigError, match=r"cannot be started \(Permission denied\)"):
        run(str(file))
    file.chmod(0o755)
    with pytest.raises(errors.ConfigError, match=r"cannot be started \(Exec format error\)"):
        run(str(file))


# Within a terminal of its own, which the test cannot be sure to have.
ASKING = """
import pathlib, pty, sys
from drawbar.driver.kube import credential_plugins
plugin = credential_plugins.Plugin(api_version=sys.argv[1], command=sys.argv[2], interactive_mode=sys.argv[3])
pid, terminal = pty.fork()
if pid == 0:
    print(plugin.is_interactive, flush=True)
    print(credential_plugins.run(plugin, pathlib.Path(), {}, limit_seconds=20).token, flush=True)
    sys.exit()
import os
received = b""
try:
    while part := os.read(terminal, 1000):
        received += part
        if part.endswith(b"code? "):
            os.write(terminal, b"1234\\n")
except OSError:
    pass
print(received.decode())
"""


@pytest.mark.parametrize(("mode", "token"), [("Always", "1234"), ("IfAvailable", "1234"), ("Never", "")])
def test_a_person_at_a_terminal_answers_the_program_if_its_mode_allows(tmp_path, mode, token):
    answer = TOKEN.replace('"t"', '"got:%s"')
    command = program(tmp_path, f"printf 'code? ' >&2; read code; printf '{answer}' \"$code\"")
    words = [sys.executable, "-c", ASKING, VERSION, command, mode]
    shown = subprocess.run(
        words, capture_output=True, text=True, timeout=60, check=True, stdin=subprocess.DEVNULL
    )
    assert str(mode != "Never") in shown.stdout
    assert f"got:{token}" in shown.stdout


def test_a_program_that_needs_a_terminal_is_not_started_without_one(tmp_path):
    code = (
        "import sys; from drawbar.driver.kube import credential_plugins as c\n"
        "c.run(c.Plugin(api_version='v', command=sys.argv[1], interactive_mode='Always'), '', {}, limit_seconds=9)"
    )
    words = [sys.executable, "-c", code, program(tmp_path, f"touch {tmp_path / 'started'}")]
    shown = subprocess.run(
        words, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )
    assert "needs a terminal" in shown.stderr
    assert not (tmp_path / "started").exists()
