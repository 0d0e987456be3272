"""The files of a kubeconfig: read once, bounded in size, checked, and merged as kubectl merges them.

The `kubernetes` package merges them. Ours is the check of types (the package lets its own TypeErrors through), and
kubectl's rules: an empty value is none, and the first `current-context` wins.

Source: "Organizing Cluster Access Using kubeconfig Files"; client-go, tools/clientcmd/api/v1.
"""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from kubernetes.config import kube_config

from drawbar.driver.kube import credential_plugins, errors

FILE_CHARS = 16 * 1024 * 1024
"""The largest file, with the repetitions of its aliases."""
SECTIONS = ("clusters", "contexts", "users")

T = TypeVar("T")


class Context(msgspec.Struct, kw_only=True):
    """A context: a cluster, a user and a namespace."""

    cluster: str
    user: str = ""
    namespace: str | None = None


class _Extension(msgspec.Struct, kw_only=True):
    name: str
    extension: Any = None


class Cluster(msgspec.Struct, rename="kebab", kw_only=True):
    """A cluster: its API server and the way there."""

    server: str
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: list[_Extension] = []


class _Provider(msgspec.Struct, kw_only=True):
    name: str
    config: dict[str, str] = {}


class User(msgspec.Struct, rename="kebab", kw_only=True):
    """A user: their credentials, and the user to act as."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    username: str = ""
    password: str = ""
    as_: str = msgspec.field(name="as", default="")
    as_uid: str = ""
    as_groups: list[str] = []
    as_user_extra: dict[str, list[str]] = {}
    exec: credential_plugins.Plugin | None = None
    auth_provider: _Provider | None = None


class _Entry(msgspec.Struct):
    name: str


class _File(msgspec.Struct, rename="kebab"):
    clusters: list[_Entry] = []
    contexts: list[_Entry] = []
    users: list[_Entry] = []
    current_context: str = ""


class Files(kube_config.KubeConfigMerger):  # type: ignore[misc] # the package is partly typed
    """Kubeconfig files, merged. Each is read once, since it may be a pipe."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__("")
        for path in paths:
            self.load_config(str(path))
            self.paths.append(str(path))
        self.config_saved = copy.deepcopy(self.config_files)

    def load_config(self, path: str) -> None:
        """Read a file and add the entries whose names are new."""
        content = _parse(Path(path))
        convert(content, _File)
        self.config_files[path] = content
        if self.config_merged is None:
            self.config_merged: Any = kube_config.ConfigNode(
                path, {section: [] for section in SECTIONS}, path
            )
        merged = self.config_merged.value
        for section in SECTIONS:
            self._merge(section, content.get(section, []), path)
            for node in merged[section]:
                # The package has the whole entry there, and puts it into messages.
                node.name = f"{section}[name={node.value['name']}]"
        if "current-context" in content:
            merged.setdefault("current-context", content["current-context"])


def _parse(path: Path) -> dict[str, Any]:
    """Return a file's content without empty values, as kubectl reads it."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(FILE_CHARS + 1)
    except OSError as error:
        raise errors.ConfigError(
            f"cannot read {path} ({error.strerror}): name another with --kubeconfig FILE"
        ) from error
    except UnicodeDecodeError as error:
        raise errors.ConfigError(f"{path} is not YAML: correct or replace the file") from error
    try:
        loader = yaml.SafeLoader(text if len(text) <= FILE_CHARS else "")
        node = loader.get_single_node()
        if max(len(text), _size(node, {})) > FILE_CHARS:
            raise errors.ConfigError(f"{path} is larger than {FILE_CHARS // 1024**2} MiB: replace the file")
        content = loader.construct_document(node) if node else {}
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        # The reason would quote the file, and with it a secret.
        raise errors.ConfigError(f"{path} is not YAML: correct or replace the file") from error
    if not isinstance(content, dict):
        raise errors.ConfigError(f"{path} is not a mapping: correct or replace the file")
    _drop_empty(content)
    return content


def _size(node: yaml.Node | None, sizes: dict[yaml.Node, int]) -> int:
    """Return the characters under a node, each as often as an alias repeats it."""
    if node is None or isinstance(node, yaml.ScalarNode):
        return 1 + len(node.value if node else "")
    if node not in sizes:
        sizes[node] = FILE_CHARS  # of a node within itself
        parts = (
            node.value
            if isinstance(node, yaml.SequenceNode)
            else [part for pair in node.value for part in pair]
        )
        sizes[node] = 1 + sum(_size(part, sizes) for part in parts)
    return sizes[node]


def _drop_empty(value: Any) -> None:
    if isinstance(value, dict):
        for key in [key for key, part in value.items() if part is None or part == ""]:
            del value[key]
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _drop_empty(part)


def convert(content: object, into: type[T]) -> T:
    """Return the content as that type; the error names a place and no value."""
    try:
        return msgspec.convert(content, into)
    except msgspec.ValidationError as error:
        what = into.__name__.lower()
        raise errors.ConfigError(f"its {what} is malformed: {error}: correct the file") from error
