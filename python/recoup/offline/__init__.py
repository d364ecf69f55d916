"""Tools that look at recorded traces and make plans. No program in a budget needs them."""
