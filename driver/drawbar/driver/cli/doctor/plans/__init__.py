"""The findings on the observed state, one module for each topic; pure."""
