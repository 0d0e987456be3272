"""`drawbar maintenance`: keeps further claims from devices, and further devices from nodes, by Maintenances.

`plan` decides the entries of each Fabric, and what they mean; `execution` writes them and waits until they hold.
"""
