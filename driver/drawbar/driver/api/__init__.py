"""Typed views of the API objects that Drawbar reads and writes.

They name only the fields that Drawbar uses. Decoding skips unknown fields, so these structs are never written back
whole, except for Drawbar's own objects.
"""
