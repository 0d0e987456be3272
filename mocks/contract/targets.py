"""The targets of the suite: our doubles, one pair of processes per release, or the cluster that you name.

DRAWBAR_CONTRACT_KUBECONFIG=FILE   that cluster, with an administrator's rights
DRAWBAR_CONTRACT_PROFILES=1.36     only these of the doubles' releases, separated by commas
"""

import contextlib
import json
import os
import secrets
import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import drawbar.mocks
from drawbar.mocks.apiserver import profiles

KUBECONFIG = "DRAWBAR_CONTRACT_KUBECONFIG"
PROFILES = "DRAWBAR_CONTRACT_PROFILES"
CLUSTER = "cluster"
NODE = "bound-node"
ACCOUNTS = ("alice", "bob", f"alice-{NODE}")
READY_SECONDS = 60.0
STOP_SECONDS = 10.0
TETHERED = Path(drawbar.mocks.__path__[0], "cluster", "tethered.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One server under test.

    Attributes:
        name: the profile, or `cluster`.
        kubeconfig: how to reach it.
        run: names everything that this run makes; also the namespace.
        accounts: kubeconfigs of service accounts, where the double hands them out.
        poll_seconds: the scheduler's pause between two looks at binding conditions.
    """

    name: str
    kubeconfig: str
    run: str
    accounts: dict[str, str] = field(default_factory=dict)
    poll_seconds: float = 5.0

    @property
    def double(self) -> bool:
        """Return whether it is ours, and new."""
        return self.name != CLUSTER


def names() -> list[str]:
    """Return the targets of this run."""
    if os.environ.get(KUBECONFIG):
        return [CLUSTER]
    chosen = os.environ.get(PROFILES, "")
    return [name for name in chosen.split(",") if name] or list(profiles.PROFILES)


def cluster() -> Target:
    """Return the named cluster."""
    return Target(name=CLUSTER, kubeconfig=os.environ[KUBECONFIG], run=_run())


@contextlib.contextmanager
def doubles(profile: str, folder: Path, *scheduling: str) -> Iterator[Target]:
    """Return an API server double and a scheduler double as processes of their own.

    Args:
        profile: the release.
        folder: for kubeconfigs and logs.
        scheduling: further arguments of the scheduler double.
    """
    run = _run()
    poll_seconds = 0.1
    accounts = [f"--service-account={run}:{account.replace('-', ':', 1)}" for account in ACCOUNTS]
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            _double(folder, "apiserver", "--profile", profile, "--kubeconfig-dir", str(folder), *accounts)
        )
        admin = str(folder / "admin.kubeconfig")
        arguments = ("--kubeconfig", admin, "--poll-seconds", str(poll_seconds), *scheduling)
        stack.enter_context(_double(folder, "scheduler", *arguments))
        yield Target(
            name=profile,
            kubeconfig=admin,
            run=run,
            accounts={name: str(folder / f"{name}.kubeconfig") for name in ACCOUNTS},
            poll_seconds=poll_seconds,
        )


@contextlib.contextmanager
def _double(folder: Path, name: str, *arguments: str) -> Iterator[None]:
    log = folder / f"{name}.log"
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                str(TETHERED),
                str(os.getpid()),
                "drawbar.mocks.command",
                name,
                *arguments,
            ],
            stdout=subprocess.PIPE,
            stderr=errors,
            stdin=subprocess.DEVNULL,
        )
        with process:
            try:
                assert process.stdout is not None
                readable, _, _ = select.select([process.stdout], [], [], READY_SECONDS)
                line = process.stdout.readline() if readable else b""
                if not line:
                    raise RuntimeError(
                        f"the {name} double did not start: {log.read_text(errors='replace')[-500:]}"
                    )
                assert json.loads(line)["ready"]
                yield
            finally:
                process.terminate()
                try:
                    process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()


def _run() -> str:
    return f"contract-{secrets.token_hex(3)}"
