"""Prepare and Unprepare: the hand-over of present devices to the containers of a claim."""
