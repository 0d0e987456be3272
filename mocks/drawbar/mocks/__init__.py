"""Drawbar's mocks component."""
