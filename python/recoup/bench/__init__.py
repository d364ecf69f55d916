"""The networks and the runner of `recoup bench`."""
