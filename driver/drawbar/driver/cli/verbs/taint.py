"""`drawbar taint`: taints devices by DeviceTaintRules, for an administrator: previews first, evicts in batches, ends by itself."""

import argparse
import asyncio
import datetime
import json
import logging
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from drawbar.driver import errors
from drawbar.driver.cli import command

TIMEOUT_SECONDS = 60.0
CHANGE_TIMEOUT_SECONDS = 3600.0
EFFECTS = ("None", "NoSchedule", "NoExecute")

Run = Callable[[argparse.Namespace], Coroutine[Any, Any, int]]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    preview = _action(
        actions, "preview", "count the claims and pods that a taint would affect; changes nothing", _preview
    )
    _selecting(preview)
    _common(preview)
    add = _action(actions, "add", "create a rule, or give one another effect, reason or end", _add)
    add.add_argument("name", metavar="NAME", help="of the rule")
    _selecting(add)
    add.add_argument(
        "--effect", choices=EFFECTS, help="default: None for a new rule, and that of a rule that exists"
    )
    add.add_argument("--reason", metavar="TEXT", help="why, for others to read")
    add.add_argument(
        "--until",
        metavar="SPAN",
        help="30m, 2h, 1d, or a time as RFC 3339: the controller deletes the rule then; or never",
    )
    pace = add.add_mutually_exclusive_group()
    pace.add_argument(
        "--rate",
        metavar="PODS",
        type=_count,
        help="evict so many pods per second: by the API where taints have a rate, else in batches (default: 10)",
    )
    pace.add_argument(
        "--batch",
        metavar="PODS",
        type=_count,
        help="evict so many pods at a time, and wait until they are gone",
    )
    _changing(add)
    listing = _action(actions, "list", "list the rules", _list)
    listing.add_argument(
        "--devices", action="store_true", help="list the taints that drivers publish in their slices, instead"
    )
    _common(listing)
    show = _action(actions, "show", "show a rule, what it affects, and how far its evictions are", _show)
    show.add_argument("name", metavar="NAME", help="of the rule")
    _common(show)
    remove = _action(actions, "remove", "delete a rule and those of its batches", _remove)
    remove.add_argument("name", metavar="NAME", help="of the rule")
    _changing(remove)


def _count(content: str) -> int:
    number = int(content)
    if not 0 < number <= 1000:
        raise argparse.ArgumentTypeError("give a number from 1 to 1000")
    return number


def _seconds(content: str) -> float:
    seconds = float(content)
    if not 0 < seconds <= 86400:
        raise argparse.ArgumentTypeError("give a number of seconds from 0 to 86400")
    return seconds


def _action(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, help_text: str, run: Run
) -> argparse.ArgumentParser:
    examples = "\n".join(f"  {line}" for line in EXAMPLES if line.startswith(f"drawbar taint {name}"))
    parser = actions.add_parser(
        name,
        help=help_text,
        description=f"{help_text[:1].upper()}{help_text[1:]}.",
        epilog=f"examples:\n{examples}\n\n{STATUSES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(act=run)
    return parser


def _selecting(parser: argparse.ArgumentParser) -> None:
    selector = parser.add_argument_group("which devices; all that are given must match")
    for name in ("driver", "pool", "device"):
        selector.add_argument(f"--{name}", metavar="NAME", help=f"the {name} of this name")
    selector.add_argument("--all", action="store_true", help="every device of the cluster")
    parser.add_argument(
        "--taint",
        metavar="KEY[=VALUE]",
        help="what claims can tolerate (default: drawbar.dev/administrator with the name of the rule)",
    )


def _common(parser: argparse.ArgumentParser, seconds: float = TIMEOUT_SECONDS) -> None:
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="how to reach the API server (default: $KUBECONFIG, else the pod's service account, else ~/.kube/config)",
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        default=seconds,
        help="the longest that all of it may take (default: %(default)g)",
    )
    parser.add_argument("-o", "--output", choices=("json", "yaml"), help="print a document for programs")


def _changing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="print the steps, and change nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask before the change")
    _common(parser, CHANGE_TIMEOUT_SECONDS)


def run(args: argparse.Namespace) -> int:
    """Run an action and return the exit status.

    Raises:
        DrawbarError: the cluster refuses, fails or is not reached (status 1), or the options are wrong (2).
    """
    act: Run = args.act
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # What fails is one sentence.
    try:
        with command.printing():
            return asyncio.run(_bounded(act, args))
    finally:
        logging.disable(before)


async def _bounded(act: Run, args: argparse.Namespace) -> int:
    try:
        async with asyncio.timeout(args.timeout) as deadline:
            return await act(args)
    except TimeoutError as error:
        if not deadline.expired():
            raise
        raise errors.DrawbarError(
            f"not finished within {args.timeout:g} s; what was begun goes on in the cluster; --timeout allows more"
        ) from error


def _print(args: argparse.Namespace, document: Any, show: Callable[[Any, Any], None]) -> None:
    if args.output == "json":
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    elif args.output == "yaml":
        import yaml

        sys.stdout.write(yaml.safe_dump(document, sort_keys=False))
    else:
        command.print_tables(lambda out: show(out, document))
    sys.stdout.flush()


def _wish(args: argparse.Namespace, name: str) -> Any:
    from drawbar.driver.api import taintrules
    from drawbar.driver.cli.taint import plan

    given = vars(args)
    try:
        taint = plan.taint(args.taint) if args.taint is not None else None
    except ValueError as error:
        raise errors.UsageError(f"--taint: {error}") from error
    until, forever = given.get("until"), given.get("until") == "never"
    try:
        moment = plan.moment(until, datetime.datetime.now(datetime.UTC)) if until and not forever else None
    except ValueError as error:
        raise errors.UsageError(f"--until: {error}") from error
    return plan.Wish(
        name=name,
        selector=taintrules.DeviceSelector(driver=args.driver, pool=args.pool, device=args.device),
        every=args.all,
        taint=taint,
        effect=given.get("effect"),
        reason=given.get("reason"),
        until=moment,
        forever=forever,
        rate=given.get("rate"),
        batch=given.get("batch"),
    )


def _api(args: argparse.Namespace) -> Any:
    from drawbar.driver.kube import client, config

    return client.connecting(config.load(args.kubeconfig))


async def _preview(args: argparse.Namespace) -> int:
    from drawbar.driver.api import slices
    from drawbar.driver.cli.taint import execution, plan, preview, views

    wish = _wish(args, "preview")
    plan.check(wish, None)
    key, value = wish.taint or (plan.KEY, "")
    async with _api(args) as api:
        snapshot = await execution.snapshot(api)
    taint = slices.Taint(key=key, value=value, effect="NoExecute")
    seen = preview.preview(wish.selector, taint, snapshot)
    _print(args, views.effects(seen, wish.selector, snapshot), views.show_effects)
    return 0


async def _list(args: argparse.Namespace) -> int:
    from drawbar.driver.cli.taint import execution, views

    async with _api(args) as api:
        if args.devices:
            listed = (await execution.snapshot(api)).slices
            _print(args, views.device_taints(listed), views.show_device_taints)
        else:
            rules = await execution.rules(api, await execution.rule_kind(api))
            _print(args, views.rules(rules), views.show_rules)
    return 0


async def _show(args: argparse.Namespace) -> int:
    from drawbar.driver.cli.taint import execution, plan, preview, views

    async with _api(args) as api:
        kind = await execution.rule_kind(api)
        chosen = plan.removed(args.name, await execution.rules(api, kind, name=args.name))
        snapshot = await execution.snapshot(api)
    rule, selector = chosen[0], chosen[0].spec.device_selector
    computed = None
    if selector is None or selector.is_computable:
        computed = views.effects(preview.preview(selector, rule.spec.taint, snapshot), selector, snapshot)
    document = {"rule": views.rule(rule, len(chosen) - 1), "preview": computed}
    _print(args, document, views.show_rule)
    return 0


async def _add(args: argparse.Namespace) -> int:
    from drawbar.driver.api import slices
    from drawbar.driver.cli import consent
    from drawbar.driver.cli.taint import execution, plan, preview, views

    wish = _wish(args, args.name)
    async with _api(args) as api:
        kind = await execution.rule_kind(api)
        rules = await execution.rules(api, kind, name=wish.name)
        existing = next((rule for rule in rules if rule.metadata.name == wish.name), None)
        plan.check(wish, existing)
        document = plan.document(kind, wish, existing, user=await execution.user(api))
        snapshot = await execution.snapshot(api)
        selector = existing.spec.device_selector if existing is not None else wish.selector
        taint = document["spec"]["taint"]
        effect = slices.Taint(key=taint["key"], value=taint.get("value", ""), effect="NoExecute")
        seen = preview.preview(selector, effect, snapshot)
        plan.check_breadth(wish, seen)
        planned = plan.steps(
            wish,
            existing,
            document,
            seen,
            has_rates=await execution.has_rates(api, kind, document),
            has_batches=any(rule.is_batch for rule in rules),
        )
        for warning in await execution.warnings(api, kind):
            sys.stderr.write(f"warning: {warning}\n")
        shown = {
            "rule": wish.name,
            "effect": taint["effect"],
            "preview": views.effects(seen, selector, snapshot),
            "steps": [plan.sentence(step, wish.name) for step in planned],
            "done": False,
        }
        if args.output is None or args.dry_run:
            _print(args, shown, views.show_steps)
        if args.dry_run or not planned:
            if not args.dry_run and args.output is not None:
                _print(args, shown | {"done": True}, views.show_steps)
            return 0
        await consent.ask(
            f"Rule {wish.name}, effect {taint['effect']}: {views.summary(shown['preview'])}. Go on?",
            assumed=args.yes,
        )
        steps = execution.Steps(api=api, kind=kind, name=wish.name)
        if existing is not None:
            steps.uid = existing.metadata.uid
        await steps.carry_out(planned)
    if args.output is not None:
        _print(args, shown | {"done": True}, views.show_steps)
    else:
        sys.stdout.write(f"DeviceTaintRule {wish.name} has effect {taint['effect']}.\n")
    return 0


async def _remove(args: argparse.Namespace) -> int:
    from drawbar.driver.cli import consent
    from drawbar.driver.cli.taint import execution, plan, views

    async with _api(args) as api:
        kind = await execution.rule_kind(api)
        chosen = plan.removed(args.name, await execution.rules(api, kind, name=args.name))
        shown = {
            "rule": args.name,
            "steps": [f"delete DeviceTaintRule {rule.metadata.name}" for rule in chosen],
            "done": False,
        }
        if args.output is None or args.dry_run:
            _print(args, shown, views.show_steps)
        if args.dry_run:
            return 0
        question = f"Delete {plan.counted(len(chosen), 'DeviceTaintRule')} of {args.name}? What is evicted already does not come back."
        await consent.ask(question, assumed=args.yes)
        await execution.delete(api, kind, chosen)
    if args.output is not None:
        _print(args, shown | {"done": True}, views.show_steps)
    else:
        sys.stdout.write(f"DeviceTaintRule {args.name} is deleted.\n")
    return 0


STATUSES = (
    "exit status: 0 done, or nothing to do; 1 declined, or the cluster refuses, fails or is not reached in time; 2 the command\n"
    "line is wrong; 130 interrupted. What was done and what not is printed on stderr."
)
EXAMPLES = (
    "drawbar taint preview --driver drawbar.dev --pool rack-1/enc-1",
    'drawbar taint add psu-swap --pool rack-1/enc-1 --reason "replace a power supply" --until 2h',
    "drawbar taint add psu-swap --effect NoExecute --batch 5",
    "drawbar taint add recall --driver drawbar.dev --device gpu-1 --effect NoSchedule --dry-run",
    "drawbar taint list",
    "drawbar taint list --devices",
    "drawbar taint show psu-swap -o yaml",
    "drawbar taint remove psu-swap",
)
COMMAND = command.Command(
    name="taint",
    help="take devices out of service by DeviceTaintRules, with a preview",
    description=(
        "Taints devices by DeviceTaintRules, of any driver. A new rule has effect None, which changes nothing and shows what it would do;\n"
        "then give it another effect. Where taints have no rate of evictions, pods are evicted in batches while this runs."
    ),
    examples=EXAMPLES,
    configure=configure,
    run=run,
)
