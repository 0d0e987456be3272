"""Kubeconfig files for clients of the server."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path


def write(path: Path, *, url: str, token: str, user: str, certificate: bytes | None) -> Path:
    """Write a kubeconfig (JSON, which is YAML) that only its owner may read; an old one is replaced.

    Args:
        path: where to.
        url: the server.
        token: the bearer token of the user.
        user: what the file calls the user.
        certificate: the PEM certificate to trust, for HTTPS.
    """
    cluster: dict[str, str] = {"server": url}
    if certificate is not None:
        cluster["certificate-authority-data"] = base64.b64encode(certificate).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "drawbar", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [
            {"name": "drawbar", "context": {"cluster": "drawbar", "user": user, "namespace": "default"}}
        ],
        "current-context": "drawbar",
    }
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)
    fresh.replace(path)
    return path
