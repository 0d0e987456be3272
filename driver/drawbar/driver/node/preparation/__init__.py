"""Prepare and Unprepare: devices that are here become usable by the containers of a claim."""
