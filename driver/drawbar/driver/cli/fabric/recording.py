"""`drawbar fabric record`: a masked transcript of a Redfish manager, even one that cannot be read otherwise."""

import functools
import os
from pathlib import Path
from typing import Any, TextIO

import msgspec

from drawbar.driver import errors
from drawbar.driver.cli import progress
from drawbar.driver.cli.fabric import connections, direct, observed
from drawbar.fabric.redfish import adapter as redfish_adapter
from drawbar.fabric.redfish import transcripts


async def record(
    source: observed.Source, path: Path, change: tuple[str, str] | None, *, assumed: bool
) -> dict[str, Any]:
    """Read the fabric, attach and detach a device if one is named, write the transcript, and return the outcome.

    The outcome and the transcript contain the failures on the way.

    Args:
        source: the fabric.
        path: the file to create; it must not exist.
        change: the ids of a device and a host.
        assumed: whether the operator's agreement to the change is assumed.

    Raises:
        UsageError: the fabric has another adapter, or the file cannot be made.
    """
    if source.spec.adapter != redfish_adapter.NAME:
        raise errors.UsageError(
            f"the adapter {source.spec.adapter} cannot be recorded; only {redfish_adapter.NAME} can"
        )
    recorder = transcripts.Recorder(connections.configuration(source))
    problem = None
    with _create_file(path) as file:
        try:
            connect = functools.partial(redfish_adapter.RedfishAdapter.connect, recorder=recorder)
            async with connections.open_adapter(source, connect) as adapter:
                async with progress.show_activity("reading the fabric"):
                    await adapter.devices()
                    await adapter.hosts()
                if change is not None:
                    await direct.attach(adapter, *change, assumed=assumed)
                    await direct.detach(adapter, change[0], assumed=assumed)
        except errors.DrawbarError as error:
            problem = str(error)
        finally:
            # This also happens at the command's deadline, so that a stalled service leaves a transcript.
            transcript = recorder.transcript()
            file.write(msgspec.json.format(msgspec.json.encode(transcript), indent=1).decode() + "\n")
    return {
        "file": str(path),
        "exchanges": len(transcript.exchanges),
        "complete": transcript.complete,
        "problem": problem,
    }


def show(out: Any, outcome: dict[str, Any]) -> None:
    """Print the transcript's path, and the failures."""
    if outcome["problem"] is not None:
        out.print(outcome["problem"], markup=False, highlight=False)
    out.print(
        f"{outcome['exchanges']} requests with their answers are in {outcome['file']}"
        f"{'' if outcome['complete'] else ', and no more fitted into it'}. Look through it before you give it away: names and "
        "descriptions that people gave are not masked.",
        markup=False,
        highlight=False,
    )


def _create_file(path: Path) -> TextIO:
    try:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8")
    except OSError as error:
        raise errors.UsageError(f"cannot make {path}: {error.strerror}; name a new file") from error
