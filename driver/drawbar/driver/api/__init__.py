"""Typed views of the API objects Drawbar reads and writes.

Only fields that Drawbar uses are named; unknown ones are skipped when decoding, so these structs are never written
back whole, except those Drawbar owns alone.
"""
