"""The root of the doubles' errors that reach a user.

MockError                 shown as one sentence, then the process ends with `exit_code`
├── UsageError            the command line, a kubeconfig or another file is wrong
├── kube.errors.KubeError the API server refused a request, or did not answer
├── cluster.ClusterError  a cluster of doubles cannot start, or one of its processes ended
└── sysfs.ImpossibleWorld no real host has the requested state
"""


class MockError(Exception):
    """An error with a message that explains it completely.

    Attributes:
        exit_code: the exit status of the process: 1 for trouble, 2 for wrong usage, 3 for an API server that gives no answer.
    """

    exit_code = 1


class UsageError(MockError):
    """The command line or a file is wrong."""

    exit_code = 2
