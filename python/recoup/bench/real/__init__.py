"""Nets of real size beside other allocators: what `recoup bench --size real` runs."""
