"""How the devices of this node are, judged from what the kernel shows of them."""
