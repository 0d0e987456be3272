"""Runs the lab's tests: `make hil`, `make hil-short`, and beside the other tests in `make test`.

    python hil-tests/run.py short              # the short set
    python hil-tests/run.py all                # everything; HIL_CONFIG=FILE: on the hardware that the file names
    python hil-tests/run.py beside CMD CMD     # the commands one after the other, and the short set beside them
    python hil-tests/run.py kubernetes DIR     # on real Kubernetes components, from their binaries in DIR

What is missing is installed first (`hil-tests/install`). `short` and `all` fail where that cannot be done. `beside` does
not: it says in a box, as the last thing, what was not tested and how to have it tested.
"""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from lab import errors, sessions
from realcluster import errors as realcluster
from realcluster import stages

USAGE_ERROR = 2


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hil-tests/run.py", description="run the tests of the QEMU lab")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("short", help="the short set")
    verbs.add_parser("all", help="everything; HIL_CONFIG=FILE: on real hardware, HIL_YES=1: without asking")
    beside = verbs.add_parser("beside", help="other commands, with the short set beside them")
    beside.add_argument("command", nargs="+", help="one after the other; the first that fails is the last")
    real = verbs.add_parser("kubernetes", help="the stages on real Kubernetes components")
    real.add_argument("binaries", type=Path, help="the directory with the binaries of one release")
    real.add_argument("--stages", default="", help="only these, separated by commas")
    real.add_argument("--no-skips", action="store_true", help="fail where a stage cannot run here")
    return parser.parse_args()


async def _run(options: argparse.Namespace, site: Path | None) -> int:
    task = asyncio.current_task()
    assert task is not None
    # What was started here ends with us, on `kill` as on Ctrl-C.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    match options.verb:
        case "short":
            return await sessions.short()
        case "all" if site is not None:
            from field import session

            return await session.run(site, yes=os.environ.get("HIL_YES") == "1")
        case "all":
            return await sessions.run_all_tests()
        case _:
            return await sessions.run_commands_and_tests(options.command)


def _kubernetes(options: argparse.Namespace) -> int:
    # As Ctrl-C does, which a shell has its background jobs ignore: what was started here ends with us.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    return stages.run(options.binaries.absolute(), options.stages, no_skips=options.no_skips)


def main() -> int:
    """Run what the command line says; return the exit status."""
    named = os.environ.get("HIL_CONFIG")
    site = Path(named).absolute() if named else None
    options = _arguments()
    try:
        if options.verb == "kubernetes":
            return _kubernetes(options)
        return asyncio.run(_run(options, site))
    except (errors.Unavailable, realcluster.RealClusterError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
