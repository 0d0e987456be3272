"""The flags that the verbs share, each with one name, one meaning and one text."""

import argparse
import re

from drawbar.driver.cli import selectors

NO_DRY_RUN, CLIENT, SERVER = "none", "client", "server"
DRY_RUNS = (NO_DRY_RUN, CLIENT, SERVER)
FORMS = ("table", "wide", "json", "yaml", "name", "jsonpath=")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
LONGEST_SECONDS = 86400.0


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the cluster, its user and the driver."""
    group = parser.add_argument_group("which cluster")
    group.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="how to reach the API server (default: $KUBECONFIG, else the pod's service account, else ~/.kube/config)",
    )
    group.add_argument(
        "--context", metavar="NAME", help="context of the kubeconfig (default: its current one)"
    )
    group.add_argument(
        "--as", dest="as_user", metavar="USER", help="act as this user; needs the right to impersonate"
    )
    group.add_argument(
        "--as-group", dest="as_groups", metavar="GROUP", action="append", help="with --as; may be repeated"
    )
    group.add_argument(
        "-n",
        "--namespace",
        metavar="NAME",
        help="namespace of a claim or pod (default: that of the context, else default); of a list: only its claims",
    )
    group.add_argument(
        "--no-color", action="store_true", help="print without colours and bold, as with NO_COLOR=1"
    )


def add_driver(parser: argparse._ActionsContainer) -> None:
    """Add the flag for the DRA driver's name."""
    parser.add_argument("--driver-name", metavar="NAME", help="the DRA driver's name (default: drawbar.dev)")


def add_daemons(parser: argparse._ActionsContainer) -> None:
    """Add the flag for the daemons' namespace."""
    parser.add_argument("--daemons", metavar="NAMESPACE", help="the daemons' namespace (default: drawbar)")


def add_listing(parser: argparse.ArgumentParser, labels: str) -> None:
    """Add the flags that every list has besides those for the cluster: `-A`, `-l` and `-o`.

    Args:
        parser: the parser of the verb or its action.
        labels: the objects that `-l` selects.
    """
    parser.add_argument(
        "-A",
        "--all-namespaces",
        action="store_true",
        help="claims of all namespaces (default unless -n); without effect on objects without a namespace",
    )
    parser.add_argument(
        "-l", "--selector", metavar="LABELS", type=selectors.parse, default=(), help=f"only {labels}"
    )
    add_output(parser)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the flag for the form of the output."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FORM",
        default="table",
        type=form,
        help="table (default), wide, json, yaml, name or jsonpath=TEMPLATE",
    )


def form(content: str) -> str:
    """Return the form of the output.

    Raises:
        argparse.ArgumentTypeError: there is no such form.
    """
    if content in FORMS or content.startswith(FORMS[-1]):
        return content
    raise argparse.ArgumentTypeError(
        f"there is no form {content!r}: use table, wide, json, yaml, name or jsonpath=TEMPLATE"
    )


def add_change(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a verb that makes changes."""
    parser.add_argument(
        "--dry-run",
        nargs="?",
        const="client",
        default="none",
        choices=DRY_RUNS,
        help="client: print the steps; server: have the API server check them, too; nothing is changed",
    )
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask before the change")


def add_timeout(
    parser: argparse.ArgumentParser, default: float, what: str = "the longest that it may take"
) -> None:
    """Add the flag for the time limit."""
    parser.add_argument(
        "--timeout",
        metavar="SPAN",
        type=seconds,
        default=default,
        help=f"{what}, such as 30s or 5m (default: {default:g}s)",
    )


def seconds(content: str) -> float:
    """Return a span such as `30s`, `5m` or `30` in seconds.

    Raises:
        argparse.ArgumentTypeError: it is no span, or longer than a day.
    """
    span = _SPAN.fullmatch(content)
    length = float(span[1]) * _UNITS[span[2] or ""] if span is not None else 0.0
    if not 0 < length <= LONGEST_SECONDS:
        raise argparse.ArgumentTypeError(
            f"{content!r} is not a span: use one such as 30s, 5m or 2h, up to a day"
        )
    return length
