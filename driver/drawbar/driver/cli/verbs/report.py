"""`drawbar report`: one archive for a bug report."""

import argparse
import datetime
import sys
from pathlib import Path

from drawbar.driver.cli import command, documents, flags, shell

TIMEOUT_SECONDS = 300.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--to", metavar="FILE", type=Path, help="the archive, .tar.gz; must not exist")
    parser.add_argument(
        "--recording",
        metavar="PATH",
        type=Path,
        action="append",
        default=[],
        help="add a recording: a folder of drawbar discover --record --mask-serials, or a file of drawbar fabric record; "
        "may be repeated",
    )
    flags.add_daemons(parser)
    flags.add_output(parser)
    flags.add_timeout(parser, TIMEOUT_SECONDS)
    flags.add_driver(parser)
    flags.add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    """Write the archive and return the exit status.

    Raises:
        DrawbarError: nothing can be read, or the archive cannot be written.
    """
    return shell.run(_run, args)


async def _run(args: argparse.Namespace) -> int:
    from drawbar.driver.cli import bundle, progress
    from drawbar.driver.cli.verbs import doctor

    now = datetime.datetime.now(datetime.UTC)
    path = args.to or Path(f"drawbar-report-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    recordings = bundle.recordings(args.recording)
    connection = shell.connection(args)
    async with progress.show_activity("collecting"):
        files = await bundle.collect(connection, doctor.find_installation(args))
    bundle.write(path, {**files, **recordings}, now=now)
    document = {"path": str(path), "files": sorted({*files, *recordings})}
    if documents.is_document(args.output):
        documents.write(args.output, "Report", document, names=[str(path)])
    else:
        sys.stdout.write("".join(f"  {name}\n" for name in document["files"]))
        sys.stdout.write(f"{path}: look through it before you send it; {bundle.CONTENT}\n")
    return 0


COMMAND = command.Command(
    name="report",
    help="collect a bug report in one archive",
    description=(
        "Writes an archive with the results of drawbar doctor and drawbar status, Drawbar's objects, Events and logs, and your\n"
        "recordings. It reads no Secret, sends nothing, and changes nothing in the cluster."
    ),
    examples=(
        "drawbar report",
        "drawbar report --to /tmp/report.tar.gz --recording transcript.json --recording host-7",
    ),
    configure=configure,
    run=run,
)
