"""The lab's tests on real hardware: a fabric manager, a node, and the devices that a file lists.

What is touched is decided before anything is: the file (`configuration`), which tests apply and with which devices
(`choice`), and what the fabric says of these (`preflight`). The rest carries it out.
"""
