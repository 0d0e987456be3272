"""The local pool: the devices that are built into this node, published under the node's name."""
