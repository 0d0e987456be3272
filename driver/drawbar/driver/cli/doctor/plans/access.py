"""The existence and permissions of the daemons' service accounts; pure."""

from collections.abc import Iterator, Sequence

from drawbar.driver.api import drivers
from drawbar.driver.catalogue import links
from drawbar.driver.cli.doctor import findings, observed
from drawbar.driver.cli.doctor.findings import Check, Finding, Severity, Unread
from drawbar.driver.cli.doctor.permissions import Daemon, Part, Permission

_NAMES = {Daemon.CONTROLLER: "controller", Daemon.NODE: "node daemon"}
_FILES = {
    Daemon.CONTROLLER: "deploy/manifests/controller-rbac.yaml",
    Daemon.NODE: "deploy/manifests/node-rbac.yaml",
}


def plan(cluster: observed.Cluster) -> Iterator[Finding]:
    """Yield the findings on both accounts: one for each resource without a needed permission."""
    accounts = {Daemon.CONTROLLER: cluster.where.controller, Daemon.NODE: cluster.where.node}
    for daemon, account in accounts.items():
        subject = f"ServiceAccount {cluster.where.namespace}/{account}"
        exists = cluster.accounts[account]
        if isinstance(exists, Unread):
            yield findings.make_unread(Check.ACCESS_ACCOUNT, exists)
        elif not exists:
            yield _absent(cluster, daemon, subject)
            continue
        yield from _permissions(cluster, daemon, subject)
        yield _policies(cluster, account, subject)
        yield from _writes(cluster, daemon, subject)


def _absent(cluster: observed.Cluster, daemon: Daemon, subject: str) -> Finding:
    return findings.make_error(
        Check.ACCESS_ACCOUNT,
        subject,
        f"does not exist, so no {_NAMES[daemon]} of driver {cluster.where.driver} can run",
        f"install Drawbar (kubectl apply -k deploy/manifests, or the chart), or name its namespace and account by --daemons and --{daemon}-account",
    )


def _permissions(cluster: observed.Cluster, daemon: Daemon, subject: str) -> Iterator[Finding]:
    answers = [answer for answer in cluster.access if not isinstance(answer, Unread)]
    asked = [answer for answer in answers if answer.permission.daemon is daemon]
    for lost in {answer.what: answer for answer in cluster.access if isinstance(answer, Unread)}.values():
        if lost.what.startswith(f"{daemon}'s"):
            yield findings.make_unread(Check.ACCESS_PERMISSION, lost)
    missing: dict[str, list[Permission]] = {}
    for answer in asked:
        if not answer.allowed:
            missing.setdefault(answer.permission.rule, []).append(answer.permission)
    for rule, permissions in missing.items():
        yield _build_missing_right(cluster, daemon, subject, rule, permissions)
    if asked and not missing:
        yield findings.make_ok(Check.ACCESS_PERMISSION, subject, f"has all {len(asked)} permissions")


def _writes(cluster: observed.Cluster, daemon: Daemon, subject: str) -> Iterator[Finding]:
    """Yield the outcome of the daemon's trial writes, which roles, admission policies, webhooks and CRDs all decide on."""
    for lost in {trial.what: trial for trial in cluster.trials if isinstance(trial, Unread)}.values():
        if lost.what.startswith(f"{daemon}'s"):
            yield findings.make_unread(Check.ACCESS_WRITES, lost)
    trials = [trial for trial in cluster.trials if not isinstance(trial, Unread) and trial.daemon is daemon]
    for trial in trials:
        if trial.refused:
            yield findings.make_error(
                Check.ACCESS_WRITES,
                subject,
                f"the API server refuses {trial.what}, tried as this account by a dry run: {trial.refused}",
                f"correct the admission policy or webhook that the message names, or the role ({_FILES[daemon]}, or the chart)",
            )
    untried = [trial.what for trial in trials if not trial.tried]
    if untried:
        yield findings.make_note(
            Check.ACCESS_WRITES,
            subject,
            f"could not be tried by a dry run: {findings.join_names(untried)}",
            (
                "run this as a user who may impersonate the service account, such as an administrator; a webhook that "
                "allows no dry runs keeps it from being tried too"
            ),
        )
    accepted = [trial.what for trial in trials if trial.tried and not trial.refused]
    if accepted and len(accepted) == len(trials):
        yield findings.make_ok(
            Check.ACCESS_WRITES, subject, f"may write, by a dry run: {', '.join(accepted)}"
        )


def _policies(cluster: observed.Cluster, account: str, subject: str) -> Finding:
    """Return the finding on the admission policies that limit the account to its own objects, as roles cannot."""
    for lost in (cluster.policies, cluster.bindings):
        if isinstance(lost, Unread):
            return findings.make_unread(Check.ACCESS_POLICIES, lost)
    in_force = {
        binding.spec.policy_name
        for binding in observed.get_objects(cluster.bindings)
        if "Deny" in binding.spec.validation_actions
    }
    user = f"'{cluster.where.user(account)}'"
    about = {
        policy.metadata.name
        for policy in observed.get_objects(cluster.policies)
        if any(user in condition.expression for condition in policy.spec.match_conditions)
    }
    idle = sorted(about - in_force)
    if about and not idle:
        return findings.make_ok(
            Check.ACCESS_POLICIES, subject, f"is pinned to its own objects by {len(about)} policies"
        )
    what = (
        f"the policies {findings.join_names(idle)} are not in force"
        if idle
        else "no admission policy is about it"
    )
    return findings.make_warning(
        Check.ACCESS_POLICIES,
        subject,
        f"{what}, so its token may write objects of other nodes or drivers as far as its roles go",
        f"apply deploy/manifests/{'classic/' if cluster.classic else ''}policies.yaml, or set policies.enabled in the chart's values",
    )


def _build_missing_right(
    cluster: observed.Cluster, daemon: Daemon, subject: str, rule: str, permissions: Sequence[Permission]
) -> Finding:
    first = permissions[0]
    verbs = ", ".join(permission.verb for permission in permissions)
    not_yet = cluster.minor is not None and cluster.minor < first.since
    return Finding(
        check=Check.ACCESS_PERMISSION,
        severity=Severity.WARNING if not_yet else Severity.ERROR,
        subject=subject,
        message=f"may not {verbs} {rule}: {first.consequence}"
        + (f", from Kubernetes 1.{first.since} on" if not_yet else ""),
        remedy=_remedy(cluster, daemon, first),
    )


def _remedy(cluster: observed.Cluster, daemon: Daemon, permission: Permission) -> str:
    if permission.resource == "secrets":
        role = drivers.resource("drawbar-fabric-credentials", cluster.where.driver)
        return (
            f"add {permission.name} to credentialsSecrets of the chart's values, or to resourceNames of the Role {role} in "
            f"namespace {cluster.where.namespace}"
        )
    match permission.part:
        case Part.CLASSIC:
            return "apply deploy/manifests/classic/controller-classic.yaml, or set classic.enabled in the chart's values"
        case Part.IMMEDIATE:
            return (
                f"set controller.config.immediateAllocation in the chart's values (without the chart: {links.url('immediate.md')}), or take "
                "policy.immediate out of the Fabrics: no other claim gets its reserved devices"
            )
        case Part.CORE:
            return f"apply the roles of this version ({_FILES[daemon]}, or the chart)"
