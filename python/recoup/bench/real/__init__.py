"""`recoup bench --size real`: nets of real size, compared with other allocators."""
