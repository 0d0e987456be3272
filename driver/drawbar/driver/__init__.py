"""Drawbar's driver component."""
