"""`drawbar maintenance`: keeps further claims from devices, and further devices from nodes, by the Fabrics' specs.

`plan` decides what each Fabric is to name, and what that means; `execution` writes it and waits until it holds.
"""
