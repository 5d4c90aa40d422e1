"""Saves a training run as a stream of small lossy deltas and brings any snapshot back fast."""
