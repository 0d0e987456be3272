"""The scheduler double for classic DRA: it negotiates with resource drivers by PodSchedulingContexts."""
