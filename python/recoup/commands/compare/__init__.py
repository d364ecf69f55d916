"""`recoup compare`: two reports of `recoup run` in one table."""
