"""Credential plugins: a kubeconfig's programs for the login (`exec`).

`kubernetes.config.exec_provider` runs them too. But it waits without end, reads without a limit, knows neither the interactive
modes nor the hint for installing the program, and its caller only logs a failure. So this module replaces it.

Source: "Authenticating", client-go credential plugins (client.authentication.k8s.io/v1).
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from drawbar.driver import output
from drawbar.driver.kube import errors

ANSWER_BYTES = 1024 * 1024
SECONDS = 60.0
INTERACTIVE_SECONDS = 600.0
"""A person may have to open a browser."""
MESSAGE_CHARS = 300


def has_terminal() -> bool:
    """Return whether a person may take part in the login."""
    return sys.stdin.isatty()


class Variable(msgspec.Struct, frozen=True):
    """An environment variable for the program."""

    name: str
    value: str = ""


class Plugin(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The program in a kubeconfig."""

    api_version: str
    command: str
    args: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"
    provide_cluster_info: bool = False

    @property
    def is_interactive(self) -> bool:
        """Return whether a person at a terminal can answer the program."""
        return self.interactive_mode != "Never" and has_terminal()


class Credential(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The program's answer: a token, a certificate with its key, or both. Go reads null as an absent field."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: str | None = None


class _Answer(msgspec.Struct, rename="camel", kw_only=True):
    api_version: str
    kind: str
    status: Credential


def run(plugin: Plugin, folder: Path, cluster: Mapping[str, Any], *, limit_seconds: float) -> Credential:
    """Run the program and return its credential.

    Args:
        plugin: the program.
        folder: the kubeconfig's, where a command such as `./login` lies.
        cluster: for a program that asks for it.
        limit_seconds: the longest time that it may take.

    Raises:
        errors.ConfigError: it is not installed, failed, took too long, or answered something else.
    """
    name = plugin.command
    if plugin.interactive_mode == "Always" and not plugin.is_interactive:
        raise errors.ConfigError(f"the login program {name} needs a terminal: run this command in one")
    command = str(folder / name) if os.sep in name else shutil.which(name)
    if command is None or not Path(command).exists():
        hint = _line(plugin.install_hint) or "install it, or correct PATH"
        raise errors.ConfigError(f"the login program {name} is not installed: {hint}")
    try:
        answer = _Run(plugin, command, cluster).wait(limit_seconds)
    except OSError as error:
        raise errors.ConfigError(
            f"the login program {name} cannot be started ({error.strerror}): make {command} executable, or install it again"
        ) from error
    try:
        exec_credential = msgspec.json.decode(answer, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unusable(name, "printed no ExecCredential") from error
    if (exec_credential.kind, exec_credential.api_version) != ("ExecCredential", plugin.api_version):
        raise _unusable(name, f"printed no ExecCredential of {plugin.api_version}")
    credential = exec_credential.status
    if bool(credential.client_certificate_data) != bool(credential.client_key_data):
        raise _unusable(name, "printed a certificate and its key not together")
    if not credential.token and not credential.client_key_data:
        raise _unusable(name, "printed neither a token nor a certificate")
    return credential


class _Run:
    """One process of the program. Its output is read up to a limit, and its time is limited."""

    def __init__(self, plugin: Plugin, command: str, cluster: Mapping[str, Any]) -> None:
        spec = {"interactive": plugin.is_interactive}
        info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
        if plugin.provide_cluster_info:
            info["spec"] = spec | {"cluster": cluster}
        self._plugin = plugin
        self._ended_by_us = False
        self._errors = b""
        # A person reads instructions on the terminal, such as the address of a page; the process stays in its group then.
        self._process = subprocess.Popen(  # noqa: S603 - the author of the kubeconfig runs their own program
            [command, *plugin.args],
            env={
                **os.environ,
                **{variable.name: variable.value for variable in plugin.env},
                "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode(),
            },
            stdin=None if plugin.is_interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if plugin.is_interactive else subprocess.PIPE,
            start_new_session=not plugin.is_interactive,
        )

    def wait(self, limit_seconds: float) -> bytes:
        """Return the output of a successful end."""
        name = self._plugin.command
        timer = threading.Timer(limit_seconds, self._end)
        timer.daemon = True
        timer.start()
        reading = threading.Thread(target=self._read_errors, daemon=True)
        reading.start()
        assert self._process.stdout is not None
        try:
            with self._process.stdout as stream:
                answer = stream.read(ANSWER_BYTES + 1)
            if len(answer) > ANSWER_BYTES:
                self._end()
            self._process.wait()
            # A program left running by the plugin may keep the pipe open.
            reading.join(timeout=1.0)
        finally:
            timer.cancel()
        if len(answer) > ANSWER_BYTES:
            raise _unusable(name, f"printed more than {ANSWER_BYTES // 1024**2} MiB")
        if self._ended_by_us:
            raise _unusable(name, f"did not end within {limit_seconds:g} s")
        if self._process.returncode:
            reason = _line(self._errors.decode(errors="replace"))
            ending = f"ended with {self._process.returncode}" + (f" ({reason})" if reason else "")
            raise _unusable(name, ending)
        return answer

    def _read_errors(self) -> None:
        """Keep the end of the program's output on stderr."""
        if self._process.stderr is not None:
            with self._process.stderr as stream:
                while part := os.read(stream.fileno(), 4096):
                    self._errors = (self._errors + part)[-MESSAGE_CHARS:]

    def _end(self) -> None:
        self._ended_by_us = True
        try:
            if self._plugin.is_interactive or not hasattr(os, "killpg"):
                self._process.kill()
            else:
                os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _unusable(name: str, problem: str) -> errors.ConfigError:
    return errors.ConfigError(f"the login program {name} {problem}: run it by hand, or try `kubectl version`")


def _line(text: str) -> str:
    """Return foreign text as one printable line of bounded length."""
    return output.printable(" ".join(text.split()))[:MESSAGE_CHARS]
