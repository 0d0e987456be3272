"""The local pool: the devices built into this node, published under the node's name."""
