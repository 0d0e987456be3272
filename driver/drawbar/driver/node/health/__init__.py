"""How the devices of this node are: what is read of them, what is judged of it, and who hears of it."""
