"""`drawbar fabric`: views and changes of a fabric, by a configuration file or by the name of a Fabric object."""

import argparse
import asyncio
import contextlib
import functools
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from drawbar.driver import errors
from drawbar.driver.cli import command, documents, flags, objects, progress, selectors, shell

TIMEOUT_SECONDS = 60.0
CHANGE_TIMEOUT_SECONDS = 300.0
WATCH_AGAIN_SECONDS = 1.0
WATCH_TIMEOUT_SECONDS = 3600.0
SUITE_TIMEOUT_SECONDS = 3600.0
NAMESPACE = "drawbar"
UNREACHED = "is the address right, and reachable from here? An operation in progress may go on: `drawbar fabric devices` shows it"

FABRIC, DEVICE, HOST = ("fabric",), ("device",), ("node", "host")
ATTACHED_KINDS = (*DEVICE, *HOST)
ATTACH_HELP = "attach a device to a host by hand"
DETACH_HELP = "detach a device that was attached by hand"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    add_action = functools.partial(shell.add_action, actions, examples=EXAMPLES)
    adapters = add_action(
        "drawbar fabric adapters", "list the installed adapters and their parameters", _adapters
    )
    flags.add_output(adapters)
    check = add_action(
        "drawbar fabric check",
        "connect to a fabric manager, and show its devices, hosts and oddities",
        _check,
    )
    _fabric_options(check)
    for name, help_text, run in (
        ("devices", "list the devices of a fabric", _devices),
        ("hosts", "list the hosts of a fabric, and their nodes", _hosts),
        (
            "operations",
            "list the operations in flight, and those that the fabric manager remembers",
            _operations,
        ),
    ):
        _fabric_options(add_action(f"drawbar fabric {name}", help_text, run), lists=name)
    configure_attach(add_action("drawbar fabric attach", ATTACH_HELP, _attach))
    configure_detach(add_action("drawbar fabric detach", DETACH_HELP, _detach))
    watch = add_action(
        "drawbar fabric watch", "print the changes of a fabric as they come, for --timeout seconds", _watch
    )
    _fabric_options(watch, seconds=WATCH_TIMEOUT_SECONDS)
    suite = add_action("drawbar fabric conformance", "judge an adapter on a live fabric", _conformance)
    suite.add_argument(
        "--devices",
        metavar="IDS",
        type=_ids,
        required=True,
        help="the only devices to touch, with commas; all free",
    )
    suite.add_argument(
        "--hosts", metavar="IDS", type=_ids, required=True, help="the one or two hosts to touch, with a comma"
    )
    suite.add_argument("--junit", metavar="FILE", type=Path, help="write the report as JUnit XML, too")
    suite.add_argument("--yes", action="store_true", help="do not ask before the first change")
    _fabric_options(suite, positional=None, seconds=SUITE_TIMEOUT_SECONDS)
    record = add_action(
        "drawbar fabric record",
        "record a Redfish manager's answers, masked, for a report",
        _record,
    )
    record.add_argument(
        "--to",
        metavar="FILE",
        type=Path,
        required=True,
        help="where to write the transcript; must not exist",
    )
    record.add_argument(
        "--attach", metavar="DEVICE", help="also attach this free device, and detach it again"
    )
    record.add_argument("--host", metavar="HOST", help="of --attach, by the fabric's id")
    record.add_argument("--yes", action="store_true", help="do not ask before the change")
    _fabric_options(record, seconds=CHANGE_TIMEOUT_SECONDS)


def configure_attach(parser: argparse.ArgumentParser) -> None:
    """Add the options of `attach`."""
    host_help = "id of the fabric's host; with --fabric also the name of its node"
    objects.add_target(
        parser,
        ATTACHED_KINDS,
        help_text=f"id of the fabric's device, then its host ({host_help})",
        metavar="DEVICE HOST",
    )
    parser.add_argument(
        "--model", metavar="MODEL", help="in place of DEVICE: one of this model, which the fabric chooses"
    )
    parser.add_argument(
        "--host", dest="host_of_model", metavar="HOST", help=f"of --model, in place of HOST: {host_help}"
    )
    _change_options(parser, _attach)


def configure_detach(parser: argparse.ArgumentParser) -> None:
    """Add the options of `detach`."""
    objects.add_target(
        parser, DEVICE, help_text="id of the fabric's device", metavar="DEVICE", is_required=True
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="with a Fabric: do not wait for the node; also for a hanging detach",
    )
    _change_options(parser, _detach)


def _change_options(parser: argparse.ArgumentParser, act: shell.Work) -> None:
    _fabric_options(parser, positional=False, seconds=CHANGE_TIMEOUT_SECONDS)
    flags.add_change(parser)
    parser.set_defaults(act=act)


def _ids(content: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in content.split(",")))
    if not all(names):
        raise argparse.ArgumentTypeError("give ids with commas between them")
    return names


def _fabric_options(
    parser: argparse.ArgumentParser,
    *,
    positional: bool | None = True,
    lists: str = "",
    seconds: float = TIMEOUT_SECONDS,
) -> None:
    """Add the options that select a fabric.

    Args:
        parser: the action's parser.
        positional: whether the Fabric is named without a flag; None if it cannot be named.
        lists: the listed things; empty for no list.
        seconds: the default time limit.
    """
    help_text = "name of a Fabric object of the cluster"
    parser.set_defaults(fabric=None)
    if positional:
        objects.add_target(parser, FABRIC, help_text=help_text, metavar="FABRIC")
    elif positional is not None:
        parser.add_argument("--fabric", metavar="FABRIC", help=help_text)
    parser.add_argument(
        "--config", metavar="FILE", type=Path, help="YAML in the form of a Fabric's spec, in place of FABRIC"
    )
    flags.add_daemons(parser)
    flags.add_timeout(parser, seconds)
    if lists:
        flags.add_listing(
            parser, f"{lists} with such fields of their JSON, as class=gpu or 'id in (gpu-1,gpu-2)'"
        )
    else:
        flags.add_output(parser)
    flags.add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    """Run an action and return the exit status.

    Raises:
        DrawbarError: the fabric manager refuses, fails or is not reached, or the options or the file are wrong.
    """
    _name_objects(args)
    if args.act is _watch:
        # A watch ends at its deadline without an error.
        args.limit, args.timeout = args.timeout, None
    return shell.run(args.act, args, late=f"{UNREACHED}; --timeout allows more")


def _name_objects(args: argparse.Namespace) -> None:
    """Set `fabric`, `device` and `host` to the objects that the words name."""
    words = getattr(args, "target", None) or []
    if args.act is _attach:
        args.device = args.host = None
        if words:
            device, rest = objects.take(words, "", DEVICE, default="device")
            args.device = device.name
            args.host = objects.parse(rest, "", HOST, default="host").name or None
    elif args.act is _detach:
        args.device = objects.parse(words, "", DEVICE, default="device").name
    elif words:
        args.fabric = objects.parse(words, "", FABRIC, default="fabric").name
    if getattr(args, "fabric", None) is not None:
        args.fabric = objects.parse([args.fabric], "", FABRIC, default="fabric").name


@contextlib.asynccontextmanager
async def _source(args: argparse.Namespace) -> AsyncIterator[Any]:
    """Yield the fabric that the options select, and a client of its cluster, or None with a file."""
    from drawbar.driver.cli.fabric import sources

    if (args.fabric is None) == (args.config is None):
        raise errors.UsageError("name either a Fabric of the cluster or --config FILE")
    if args.config is not None:
        yield sources.from_file(args.config), None
        return
    async with shell.connecting(args) as session:
        async with progress.show_activity("reading the cluster"):
            source = await sources.from_cluster(session.api, args.fabric, args.daemons or NAMESPACE)
        yield source, session.api


def _print(
    args: argparse.Namespace, kind: str, document: Any, show: Callable[[Any, Any], None], *, name: str
) -> None:
    """Print a document.

    Args:
        args: the parsed command line.
        kind: the kind of the document.
        document: the document, or its items; of these `-l` selects.
        show: prints it for people.
        name: KIND/NAME of the document, or the kind of its items.
    """
    names = [name]
    if isinstance(document, list):
        document = [item for item in document if selectors.matches(getattr(args, "selector", ()), item)]
        names = [f"{name}/{item.get('id') or item.get('name')}" for item in document]
    shell.show(args, kind, document, lambda out: show(out, document), names=names)


async def _adapters(args: argparse.Namespace) -> int:
    from drawbar.driver.cli.fabric import views
    from drawbar.fabric import errors as fabric_errors
    from drawbar.fabric import registry

    listed: list[dict[str, Any]] = []
    for name in registry.adapter_names():
        try:
            schema, problem = registry.adapter_class(name).parameters_schema(), None
        except fabric_errors.InvalidConfiguration as error:
            schema, problem = None, error.message
        listed.append({"name": name, "parameters": schema, "problem": problem})
    _print(args, "AdapterList", listed, views.show_adapters, name="adapter")
    return 0


async def _check(args: argparse.Namespace) -> int:
    from drawbar.driver.cli.fabric import connections, views

    async with _source(args) as (source, _), connections.open_adapter(source) as adapter:
        async with progress.show_activity("reading the fabric"):
            can = await adapter.capabilities()
            inventory = await adapter.devices()
            hosts = await adapter.hosts()
        _print(
            args,
            "FabricCheck",
            views.check(source, can, hosts, inventory),
            views.show_check,
            name=f"fabric/{source.name}",
        )
    return 0


async def _devices(args: argparse.Namespace) -> int:
    from drawbar.driver.cli.fabric import connections, views

    async with _source(args) as (source, _), connections.open_adapter(source) as adapter:
        async with progress.show_activity("reading the devices"):
            inventory = await adapter.devices()
            hosts = await adapter.hosts()
        _print(
            args,
            "FabricDeviceList",
            views.devices(inventory.devices, hosts, source),
            views.show_devices,
            name="device",
        )
    for sentence in inventory.unread:
        sys.stderr.write(f"warning: {sentence}; its devices are in doubt\n")
    return errors.ExitStatus.UNREAD if inventory.unread else errors.ExitStatus.FINE


async def _hosts(args: argparse.Namespace) -> int:
    from drawbar.driver.cli.fabric import connections, oddities, views

    async with _source(args) as (source, _), connections.open_adapter(source) as adapter:
        async with progress.show_activity("reading the hosts"):
            hosts = await adapter.hosts()
        mapped = oddities.node_map(source, hosts)
        _print(
            args,
            "FabricHostList",
            [views.host(host, mapped) for host in hosts],
            views.show_hosts,
            name="host",
        )
    return 0


async def _operations(args: argparse.Namespace) -> int:
    from drawbar.driver.cli.fabric import connections, views

    async with _source(args) as (source, _), connections.open_adapter(source) as adapter:
        async with progress.show_activity("reading the operations"):
            operations = await adapter.operations()
        _print(
            args,
            "FabricOperationList",
            [views.operation(operation) for operation in operations],
            views.show_operations,
            name="operation",
        )
    return 0


async def _watch(args: argparse.Namespace) -> int:
    from drawbar.driver.cli.fabric import connections, views
    from drawbar.fabric import contract

    try:
        async with asyncio.timeout(args.limit) as deadline:
            async with _source(args) as (source, _), connections.open_adapter(source) as adapter:
                if not (await adapter.capabilities()).watch:
                    raise errors.DrawbarError(
                        "the fabric serves no watch; use `drawbar fabric devices` now and then"
                    )
                version = (await adapter.devices()).version
                sys.stderr.write("watching\n")
                sys.stderr.flush()
                while True:
                    async with adapter.watch(version) as events:
                        async for event in events:
                            document = views.event(event, source)
                            if document is not None and not _print_line(args, document):
                                return 0
                            if isinstance(event, contract.Resync):
                                break
                            version = event.version
                    await asyncio.sleep(WATCH_AGAIN_SECONDS)
                    version = (await adapter.devices()).version
    except TimeoutError:
        if not deadline.expired():
            raise
    return 0


def _print_line(args: argparse.Namespace, document: dict[str, Any]) -> bool:
    """Print an event; return whether the output is still open."""
    from drawbar.driver.cli.fabric import views

    try:
        if documents.is_document(args.output):
            subject = document.get(document["event"].partition("-")[0], {})
            name = f"{document['event']}/{subject.get('id', '')}"
            documents.write_event(args.output, "FabricEvent", document, name=name)
        else:
            sys.stdout.write(views.event_line(document) + "\n")
            sys.stdout.flush()
    except BrokenPipeError:
        # Outside of the adapter's watch, which would take an error here for a defect of the adapter.
        return False
    return True


async def _conformance(args: argparse.Namespace) -> int:
    from drawbar.driver.cli import consent
    from drawbar.driver.cli.fabric import connections, views
    from drawbar.fabric import conformance

    async with _source(args) as (source, _), connections.open_adapter(source) as adapter:
        await consent.ask(
            f"Attach and detach the devices {', '.join(args.devices)} on the hosts {', '.join(args.hosts)}? Their data "
            "may be lost.",
            assumed=args.yes,
        )

        def show(outcome: conformance.Outcome) -> None:
            sys.stderr.write(f"{outcome.verdict.value}: {outcome.name}\n")
            sys.stderr.flush()

        report = await conformance.check(adapter, device_ids=args.devices, host_ids=args.hosts, ended=show)
    if args.junit is not None:
        try:
            args.junit.write_bytes(
                conformance.junit(report, suite=f"drawbar fabric adapter {source.spec.adapter}")
            )
        except OSError as error:
            raise errors.UsageError(
                f"cannot write {args.junit}: {error.strerror}; name another file"
            ) from error
    _print(args, "ConformanceReport", views.report(report), views.show_report, name=f"fabric/{source.name}")
    return 0 if report.passed else 1


async def _record(args: argparse.Namespace) -> int:
    from drawbar.driver.cli.fabric import recording

    if (args.attach is None) != (args.host is None):
        raise errors.UsageError("--attach and --host go together; give both, or none")
    async with _source(args) as (source, api):
        if args.attach is not None and api is not None:
            raise errors.UsageError(
                "--attach takes no lock of the cluster, so it goes with --config; leave it out, or use a file"
            )
        change = (args.attach, args.host) if args.attach is not None else None
        outcome = await recording.record(source, args.to, change, assumed=args.yes)
    _print(args, "FabricRecording", outcome, recording.show, name=str(args.to))
    return 0 if outcome["problem"] is None else 1


async def _attach(args: argparse.Namespace) -> int:
    from drawbar.driver.cli.fabric import connections, direct, locked

    named, by_model = (args.device, args.host), (args.model, args.host_of_model)
    if (None in named or any(by_model)) and (None in by_model or any(named)):
        raise errors.UsageError("name either DEVICE and HOST, or --model MODEL and --host HOST")
    is_dry = _is_dry(args)
    async with _source(args) as (source, api), connections.open_adapter(source) as adapter:
        if args.model is not None:
            if api is None:
                outcome = await direct.attach_model(adapter, *by_model, assumed=args.yes, dry_run=is_dry)
            else:
                outcome = await locked.attach_model(
                    api, source, adapter, *by_model, assumed=args.yes, dry_run=args.dry_run
                )
        elif api is None:
            outcome = await direct.attach(adapter, args.device, args.host, assumed=args.yes, dry_run=is_dry)
        else:
            outcome = await locked.attach(
                api, source, adapter, args.device, args.host, assumed=args.yes, dry_run=args.dry_run
            )
    _print_outcome(args, outcome)
    return 0


async def _detach(args: argparse.Namespace) -> int:
    from drawbar.driver.cli.fabric import connections, direct, locked

    is_dry = _is_dry(args)
    async with _source(args) as (source, api):
        if api is not None:
            outcome = await locked.detach(
                api, source, args.device, force=args.force, assumed=args.yes, dry_run=args.dry_run
            )
        elif args.force:
            raise errors.UsageError(
                "--force is for --fabric, where a node has to release the device first; without a cluster nothing is waited for"
            )
        else:
            async with connections.open_adapter(source) as adapter:
                outcome = await direct.detach(adapter, args.device, assumed=args.yes, dry_run=is_dry)
    _print_outcome(args, outcome)
    return 0


def _is_dry(args: argparse.Namespace) -> bool:
    """Return whether nothing is to be changed.

    Raises:
        UsageError: the API server is to check a change that it is not part of.
    """
    if args.dry_run == flags.SERVER and args.config is not None:
        raise errors.UsageError(
            "--dry-run=server has the API server check the change, and --config uses none; use --dry-run=client"
        )
    return bool(args.dry_run != flags.NO_DRY_RUN)


def _print_outcome(args: argparse.Namespace, outcome: dict[str, Any]) -> None:
    if documents.is_document(args.output):
        document = outcome | {"dryRun": args.dry_run}
        documents.write(args.output, "AttachmentChange", document, names=[f"device/{outcome['device']}"])
        return
    where = f"attached to host {outcome['host']}" if outcome["host"] is not None else "detached"
    verb = "is" if args.dry_run == flags.NO_DRY_RUN or not outcome["changed"] else "would be"
    device = (
        f"Device {outcome['device']}"
        if outcome["device"] is not None
        else f"A device of the model {args.model}"
    )
    sys.stdout.write(f"{device} {verb} {where}{'' if outcome['changed'] else ' already'}.\n")


EXAMPLES = (
    "drawbar fabric adapters",
    "drawbar fabric check rack-1",
    "drawbar fabric check --config fabric.yaml --timeout 10",
    "drawbar fabric devices --config fabric.yaml -o json",
    "drawbar fabric hosts rack-1",
    "drawbar fabric attach gpu-1 worker-1 --fabric rack-1",
    "drawbar fabric attach gpu-1 host-1 --config fabric.yaml --yes",
    "drawbar fabric attach --model A100 --host worker-1 --fabric rack-1",
    "drawbar fabric detach gpu-1 --fabric rack-1",
    "drawbar fabric detach gpu-1 --fabric rack-1 --force",
    "drawbar fabric operations rack-1",
    "drawbar fabric watch rack-1 --timeout 60",
    "drawbar fabric conformance --config fabric.yaml --devices gpu-1 --hosts host-1,host-2 --junit report.xml",
    "drawbar fabric record --config fabric.yaml --to transcript.json",
    "drawbar fabric record --config fabric.yaml --to transcript.json --attach gpu-1 --host host-1",
)
COMMAND = command.Command(
    name="fabric",
    help="look at a fabric, attach and detach by hand",
    description=(
        "Looks at a fabric through its adapter, from where this runs, and attaches and detaches by hand. The fabric is a Fabric object of the cluster, or a\n"
        "configuration file in the form of a Fabric's spec."
    ),
    examples=EXAMPLES,
    configure=configure,
    run=run,
)
