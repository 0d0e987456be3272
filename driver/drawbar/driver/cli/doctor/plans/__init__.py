"""What follows from what was observed, topic by topic; all of it pure."""
