"""The local pool: the devices that live in this node for good, published under the node's name."""
