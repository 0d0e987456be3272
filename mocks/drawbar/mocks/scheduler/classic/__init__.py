"""The scheduler double's part in classic DRA: it negotiates with resource drivers over PodSchedulingContexts."""
