"""The control plane: pools of fabric devices, and their attachments to nodes."""
