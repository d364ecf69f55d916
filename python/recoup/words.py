"""The terms that reports, pages and errors use; docs/glossary.md lists them too."""

WORDS = {
    "budget": "the most bytes that the tensors of a device may take while a scope is open",
    "charge": "count bytes against the budget, because they are in memory: those of tensors, of "
    "what kernels hold while they run, and of tensors that were made outside the scope",
    "peak": "the most bytes that were charged at one moment",
    "evict": "drop the bytes of a tensor, and keep how to get them back: the tensor stays, and the "
    "program does not see that its bytes are gone",
    "replay": "run an op again, with the same inputs, random numbers and settings, to get an "
    "evicted tensor back; its bits are those of the first run",
    "non-recomputable": "not to be computed again by recoup, such as a parameter, a gradient, the "
    "optimizer's state or an input: without a spill tier such a tensor is never evicted",
    "pin": "keep a tensor where it is, so that it is neither evicted nor moved: the running op "
    "pins what it uses, and recoup.pin what the program names",
    "escape": "give the address of a tensor's bytes to code that recoup does not see, such as "
    "NumPy: from then on these bytes stay, and nothing is computed again from them",
    "spill": "evict a tensor by writing its bytes to the spill tier, a file on a disk or memory "
    "of the host: recoup.budget(spill=...)",
    "fetch": "read a spilled tensor back from the spill tier",
}
"""Each term and its meaning."""
