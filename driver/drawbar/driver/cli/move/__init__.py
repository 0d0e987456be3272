"""`drawbar move`: has the pods of a claim started anew, on another device.

`plan` decides what that takes and what it means; `execution` keeps the devices from further claims, evicts the pods, waits for
those that take their place, and lets the devices be given again.
"""
