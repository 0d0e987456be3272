"""`drawbar taint`: DeviceTaintRules for an administrator, with a preview, evictions in batches, and an end."""

import argparse
import datetime
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from drawbar.driver import errors
from drawbar.driver.cli import command, documents, flags, objects, selectors, shell

TIMEOUT_SECONDS = 60.0
CHANGE_TIMEOUT_SECONDS = 3600.0
EFFECTS = ("None", "NoSchedule", "NoExecute")
LATE = "the steps that were begun go on in the cluster; give the command again, or allow more with --timeout"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    add_action = functools.partial(shell.add_action, actions, examples=EXAMPLES)
    preview = add_action(
        "drawbar taint preview",
        "count the claims and pods that a taint would affect; changes nothing",
        _preview,
    )
    preview.add_argument("--effect", choices=EFFECTS, default=EFFECTS[-1], help="default: %(default)s")
    _add_selectors(preview)
    _common(preview)
    add = add_action("drawbar taint add", "create a rule, or give one another effect, reason or end", _add)
    _add_selectors(add, metavar="NAME")
    add.add_argument(
        "--effect", choices=EFFECTS, help="default: None for a new rule, and that of a rule that exists"
    )
    add.add_argument("--reason", metavar="TEXT", help="why, for others to read")
    add.add_argument(
        "--until",
        metavar="SPAN",
        help="30m, 2h, 1d, or a time as RFC 3339: the controller deletes the rule then; or never",
    )
    add.add_argument(
        "--allow-empty", action="store_true", help="create the rule also if it selects no device now"
    )
    pace = add.add_mutually_exclusive_group()
    pace.add_argument(
        "--rate",
        metavar="PODS",
        type=_count,
        help="evict this many pods per second: by the API if taints have a rate, else in batches (default: 10)",
    )
    pace.add_argument(
        "--batch",
        metavar="PODS",
        type=_count,
        help="evict this many pods at a time, and wait until they are gone",
    )
    _add_change_flags(add)
    listing = add_action("drawbar taint list", "list the rules", _list)
    listing.add_argument(
        "--devices", action="store_true", help="list the taints that drivers publish in their slices, instead"
    )
    flags.add_listing(
        listing, "rules with these labels; with --devices, taints with such fields, as pool=rack-1/enc-1"
    )
    _add_connection(listing)
    show = add_action("drawbar taint show", "show a rule, its effects and the state of its evictions", _show)
    _add_name(show)
    _common(show)
    remove = add_action("drawbar taint remove", "delete a rule and those of its batches", _remove)
    _add_name(remove)
    _add_change_flags(remove)


def _count(content: str) -> int:
    number = int(content)
    if not 0 < number <= 1000:
        raise argparse.ArgumentTypeError("give a number from 1 to 1000")
    return number


def _add_name(parser: argparse.ArgumentParser) -> None:
    objects.add_target(parser, RULE, help_text="the rule's name", metavar="NAME", is_required=True)


def _add_selectors(parser: argparse.ArgumentParser, *, metavar: str = "") -> None:
    """Add the options that select devices; `metavar` stands for a rule's name that comes first."""
    before = "the rule's name, then " if metavar else ""
    objects.add_target(
        parser,
        KINDS,
        help_text=f"{before}device/NAME (with its pool in front if several have its name), enclosure/FABRIC/NAME or node/NAME (its own devices)",
        metavar=metavar or "KIND/NAME",
        is_required=bool(metavar),
    )
    selector = parser.add_argument_group("which devices; they must match all selectors")
    selector.add_argument("--driver-name", metavar="NAME", help="the devices of this DRA driver")
    selector.add_argument("--pool", metavar="NAME", help="the devices of this pool, of one driver")
    selector.add_argument("--device", metavar="NAME", help="the device of this name, of one driver and pool")
    selector.add_argument("--all", action="store_true", help="every device of the cluster")
    parser.add_argument(
        "--taint",
        metavar="KEY[=VALUE]",
        help="what claims can tolerate (default: drawbar.dev/administrator with the name of the rule)",
    )


def _common(parser: argparse.ArgumentParser, seconds: float = TIMEOUT_SECONDS) -> None:
    flags.add_output(parser)
    _add_connection(parser, seconds)


def _add_connection(parser: argparse.ArgumentParser, seconds: float = TIMEOUT_SECONDS) -> None:
    flags.add_timeout(parser, seconds)
    flags.add_cluster(parser)


def _add_change_flags(parser: argparse.ArgumentParser) -> None:
    flags.add_change(parser)
    _common(parser, CHANGE_TIMEOUT_SECONDS)


def run(args: argparse.Namespace) -> int:
    """Run an action and return the exit status.

    Raises:
        DrawbarError: the cluster refuses, fails or is not reached, or the options are wrong.
    """
    if args.act in (_add, _show, _remove):
        rule, rest = objects.take(args.target, "", RULE, default=RULE[0])
        if rest and args.act is not _add:
            raise errors.UsageError(f"name one rule, not {' '.join(args.target)}")
        args.name, args.target = rule.name, rest
    return shell.run(args.act, args, late=LATE if args.act in (_add, _remove) else "")


def _print(
    args: argparse.Namespace,
    kind: str,
    document: Any,
    show: Callable[[Any, Any], None],
    *,
    names: Sequence[str] = (),
) -> None:
    shell.show(args, kind, document, lambda out: show(out, document), names=names)
    sys.stdout.flush()


def _selector(args: argparse.Namespace) -> Any:
    """Return the selector for KIND/NAME and the flags."""
    from drawbar.driver.api import taintrules

    pool, device = args.pool, args.device
    if args.target:
        target = objects.parse(args.target, "", KINDS, hints=HINTS)
        if pool or device:
            raise errors.UsageError("KIND/NAME and --pool or --device do not go together: leave one out")
        if target.kind == "device":
            pool, _, device = target.name.rpartition("/")
        else:
            pool = target.name
    return taintrules.DeviceSelector(driver=args.driver_name, pool=pool or None, device=device or None)


def _resolve(request: Any, snapshot: Any) -> Any:
    """Return the request with the driver and pool of its devices."""
    import msgspec

    from drawbar.driver.cli.taint import rule_steps

    return msgspec.structs.replace(request, selector=rule_steps.resolve(request.selector, snapshot))


def _read_request(args: argparse.Namespace, name: str) -> Any:
    from drawbar.driver.cli.taint import rule_steps

    options = vars(args)
    try:
        taint = rule_steps.taint(args.taint) if args.taint is not None else None
    except ValueError as error:
        raise errors.UsageError(f"--taint: {error}") from error
    until, forever = options.get("until"), options.get("until") == "never"
    try:
        moment = (
            rule_steps.moment(until, datetime.datetime.now(datetime.UTC)) if until and not forever else None
        )
    except ValueError as error:
        raise errors.UsageError(f"--until: {error}") from error
    return rule_steps.RuleRequest(
        name=name,
        selector=_selector(args),
        every=args.all,
        taint=taint,
        effect=options.get("effect"),
        reason=options.get("reason"),
        until=moment,
        forever=forever,
        rate=options.get("rate"),
        batch=options.get("batch"),
    )


async def _preview(args: argparse.Namespace) -> int:
    from drawbar.driver.api import slices
    from drawbar.driver.cli.taint import execution, preview, rule_steps, views

    request = _read_request(args, "preview")
    rule_steps.check(request, None)
    key, value = request.taint or (rule_steps.KEY, "")
    async with shell.connecting(args) as session:
        api = session.api
        snapshot = await execution.snapshot(api)
    request = _resolve(request, snapshot)
    taint = slices.Taint(key=key, value=value, effect="NoExecute")
    seen = preview.preview(request.selector, taint, snapshot)
    document = views.effects(seen, request.selector, snapshot, args.effect)
    _print(args, "TaintPreview", document, views.show_effects, names=views.names(document))
    return 0


async def _list(args: argparse.Namespace) -> int:
    from drawbar.driver.cli.taint import execution, views

    async with shell.connecting(args) as session:
        api = session.api
        if args.devices:
            listed = (await execution.snapshot(api)).slices
            taints = [item for item in views.device_taints(listed) if selectors.matches(args.selector, item)]
            names = [f"device/{item['device']}" for item in taints]
            _print(args, "DeviceTaintList", taints, views.show_device_taints, names=names)
        else:
            rules = await execution.rules(api, await execution.rule_kind(api))
            chosen = [rule for rule in rules if selectors.matches(args.selector, rule.metadata.labels)]
            shown = views.rules(chosen)
            names = [f"devicetaintrule/{item['name']}" for item in shown]
            _print(args, "TaintRuleList", shown, views.show_rules, names=names)
    return 0


async def _show(args: argparse.Namespace) -> int:
    from drawbar.driver.cli.taint import execution, preview, rule_steps, views

    async with shell.connecting(args) as session:
        api = session.api
        kind = await execution.rule_kind(api)
        chosen = rule_steps.select_rules(args.name, await execution.rules(api, kind, name=args.name))
        snapshot = await execution.snapshot(api)
    rule, selector = chosen[0], chosen[0].spec.device_selector
    computed = None
    if selector is None or selector.is_computable:
        seen = preview.preview(selector, rule.spec.taint, snapshot)
        computed = views.effects(seen, selector, snapshot, rule.spec.taint.effect)
    document = {"rule": views.rule(rule, len(chosen) - 1), "preview": computed}
    _print(args, "TaintRule", document, views.show_rule, names=[f"devicetaintrule/{args.name}"])
    return 0


async def _add(args: argparse.Namespace) -> int:
    from drawbar.driver.api import slices, taintrules
    from drawbar.driver.cli import consent, identity
    from drawbar.driver.cli.taint import execution, preview, rule_steps, views

    request = _read_request(args, args.name)
    async with shell.connecting(args) as session:
        api = session.api
        kind = await execution.rule_kind(api)
        rules = await execution.rules(api, kind, name=request.name)
        existing = next((rule for rule in rules if rule.metadata.name == request.name), None)
        snapshot = await execution.snapshot(api)
        request = _resolve(request, snapshot)
        rule_steps.check(request, existing)
        document = rule_steps.document(kind, request, existing, user=await identity.user(api))
        selector = existing.spec.device_selector if existing is not None else request.selector
        taint = document["spec"]["taint"]
        effect = slices.Taint(key=taint["key"], value=taint.get("value", ""), effect="NoExecute")
        seen = preview.preview(selector, effect, snapshot)
        rule_steps.check_breadth(request, seen, allow_empty=args.allow_empty)
        planned = rule_steps.steps(
            request,
            existing,
            document,
            seen,
            has_rates=await execution.has_rates(api, kind, document),
            has_batches=any(rule.is_batch for rule in rules),
        )
        for warning in await execution.warnings(api, kind):
            sys.stderr.write(f"warning: {warning}\n")
        annotations = document["metadata"]["annotations"]
        shown = {
            "rule": request.name,
            "taint": views.taint(effect),
            "effect": taint["effect"],
            "reason": annotations.get(taintrules.REASON_ANNOTATION),
            "expiresAt": annotations.get(taintrules.EXPIRES_ANNOTATION),
            "preview": views.effects(seen, selector, snapshot, taint["effect"]),
            "steps": [rule_steps.sentence(step, request.name) for step in planned],
            "done": False,
        }
        is_dry, is_document = args.dry_run != "none", documents.is_document(args.output)
        names = [f"devicetaintrule/{request.name}"]
        if args.dry_run == "server":
            await execution.try_out(api, kind, document, is_new=existing is None)
        if not is_document or is_dry:
            _print(args, "TaintChange", shown, views.show_steps, names=names)
        if is_dry or not planned:
            if not is_dry and is_document:
                _print(args, "TaintChange", shown | {"done": True}, views.show_steps, names=names)
            return 0
        question = f"{'Create' if existing is None else 'Change'} the DeviceTaintRule {request.name}?"
        if is_document:  # then no preview was printed
            question = f"{views.summary(shown['preview'])}. {question}"
        await consent.ask(question, assumed=args.yes)
        steps = execution.Steps(api=api, kind=kind, name=request.name)
        if existing is not None:
            steps.uid = existing.metadata.uid
        await steps.carry_out(planned)
    if is_document:
        _print(args, "TaintChange", shown | {"done": True}, views.show_steps, names=names)
    else:
        sys.stdout.write(f"DeviceTaintRule {request.name} has effect {taint['effect']}.\n")
    return 0


async def _remove(args: argparse.Namespace) -> int:
    from drawbar.driver.cli import consent
    from drawbar.driver.cli.taint import execution, rule_steps, views

    async with shell.connecting(args) as session:
        api = session.api
        kind = await execution.rule_kind(api)
        chosen = rule_steps.select_rules(args.name, await execution.rules(api, kind, name=args.name))
        shown = {
            "rule": args.name,
            "steps": [f"delete DeviceTaintRule {rule.metadata.name}" for rule in chosen],
            "done": False,
        }
        is_dry, is_document = args.dry_run != "none", documents.is_document(args.output)
        names = [f"devicetaintrule/{rule.metadata.name}" for rule in chosen]
        if not is_document or is_dry:
            _print(args, "TaintChange", shown, views.show_steps, names=names)
        if is_dry:
            return 0
        await consent.ask(rule_steps.ask_removal(args.name, chosen), assumed=args.yes)
        await execution.delete(api, kind, chosen)
    if is_document:
        _print(args, "TaintChange", shown | {"done": True}, views.show_steps, names=names)
    else:
        sys.stdout.write(f"DeviceTaintRule {args.name} is deleted.\n")
    return 0


KINDS = ("device", "enclosure", "node")
RULE = ("rule",)
HINTS = {
    "fabric": "taint its enclosures: drawbar taint add NAME enclosure/FABRIC/ENCLOSURE",
    "attachment": "taint its device: drawbar taint add NAME device/POOL/DEVICE",
    "claim": "drawbar status claim/NAME shows its devices",
    "pod": "drawbar status pod/NAME shows its devices",
}
EXAMPLES = (
    "drawbar taint preview enclosure/rack-1/enc-1",
    'drawbar taint add psu-swap --pool rack-1/enc-1 --reason "replace a power supply" --until 2h',
    "drawbar taint add psu-swap --effect NoExecute --batch 5",
    "drawbar taint add recall device/rack-1/enc-1/gpu-1 --effect NoSchedule --dry-run",
    "drawbar taint list",
    "drawbar taint list --devices",
    "drawbar taint show psu-swap -o yaml",
    "drawbar taint remove psu-swap",
)
COMMAND = command.Command(
    name="taint",
    help="take devices out of service by DeviceTaintRules, with a preview",
    description=(
        "Taints devices by DeviceTaintRules, of any driver. A new rule has effect None: it changes nothing and shows its effects.\n"
        "Then give it another effect. If taints have no rate of evictions, this evicts pods in batches while it runs."
    ),
    examples=EXAMPLES,
    configure=configure,
    run=run,
)
