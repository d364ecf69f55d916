"""Tools that analyze recorded traces and make plans. A program in a budget does not need them."""
