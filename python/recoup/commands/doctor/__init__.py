"""`recoup doctor`."""
