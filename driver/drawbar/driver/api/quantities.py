"""Kubernetes quantities, as the API server gives them back. Source: `k8s.io/apimachinery/pkg/api/resource`."""

_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def of_bytes(amount: int) -> str:
    """An amount of bytes in canonical form: the largest binary unit that leaves a whole number."""
    for power in range(len(_SUFFIXES) - 1, 0, -1):
        if amount and amount % 1024**power == 0:
            return f"{amount // 1024**power}{_SUFFIXES[power]}"
    return str(amount)
