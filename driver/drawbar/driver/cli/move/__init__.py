"""`drawbar move`: restart the pods of a claim on another device.

`plan` decides the steps and their consequences. `execution` keeps further claims from the devices, evicts the pods,
waits for their successors, and opens the devices to claims again.
"""
