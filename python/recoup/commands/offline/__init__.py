"""`recoup layout` and `recoup order`."""
