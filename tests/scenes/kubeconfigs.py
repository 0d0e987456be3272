"""Kubeconfig files."""

import base64

import yaml

SECRET = "s3cr3t-t0ken"
URL = "https://10.0.0.1:6443"


def text64(raw):
    return base64.b64encode(raw).decode()


def kubeconfig(folder, *, cluster=None, user=None, **top):
    """Write a kubeconfig with one context `here`; `top` replaces sections of it."""
    content = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": URL} if cluster is None else cluster}],
        "users": [{"name": "u", "user": {"token": SECRET} if user is None else user}],
    }
    folder.mkdir(exist_ok=True)
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(content | top))
    return file
