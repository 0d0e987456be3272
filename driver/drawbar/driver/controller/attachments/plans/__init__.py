"""The concepts of the plan of one part, each decided from `part_state.PartState`."""
