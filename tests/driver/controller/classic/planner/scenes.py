"""Where tests of the planner begin, and what they ask of its steps; `world` is the fixture."""


def names(steps):
    """Return the names of the steps' types."""
    return [type(step).__name__ for step in steps]


def kinds(steps):
    """Return the types of the steps."""
    return [type(step) for step in steps]


def of_kind(steps, kind):
    """Return the steps of this type."""
    return [step for step in steps if isinstance(step, kind)]


def make_waiting_pod(world, *, claims=("c",), selected="", potential=("n1", "n2"), **changes):
    """Return a cluster with one pod that waits for these claims, and the pod."""
    cluster = world(**changes)
    for name in claims:
        cluster.claim(name)
    pod = cluster.pod("p", *claims)
    cluster.select(pod, selected, potential)
    return cluster, pod


def make_running_pod(world, **changes):
    """Return a cluster with one pod whose claim was allocated on n1, the pod and the claim."""
    cluster, pod = make_waiting_pod(world, selected="n1", **changes)
    cluster.settle()
    cluster.attach_all()
    cluster.settle()
    (claim,) = cluster.claims.values()
    assert claim.allocation is not None
    return cluster, pod, claim


def only(cluster):
    """Return the only claim of the cluster."""
    (claim,) = cluster.claims.values()
    return claim
