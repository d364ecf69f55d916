"""The terms that reports, pages and errors use; docs/reference.md lists them too."""

WORDS = {
    "budget": "the most bytes that the tensors of a device may take while a scope is open",
    "charge": "count bytes against the budget while they are in memory: bytes of tensors, of "
    "workspaces of running kernels, and of tensors that were made outside the scope",
    "peak": "the most bytes that were charged at one moment",
    "evict": "free the bytes of a tensor and keep the information to restore them: the tensor "
    "stays valid, and recoup restores its bytes before the program uses them",
    "replay": "run an op again, with the same inputs, random numbers and settings, to restore an "
    "evicted tensor; its bits equal those of the first run",
    "non-recomputable": "that recoup cannot compute again, such as a parameter, a gradient, "
    "optimizer state or an input: without a spill tier such a tensor is never evicted",
    "pin": "keep a tensor at its address, so that it is neither evicted nor moved: a running op "
    "pins the tensors it uses, and recoup.pin pins a tensor of the program",
    "escape": "give the address of a tensor's bytes to code that recoup does not see, such as "
    "NumPy: from then on these bytes are never evicted or moved, and no tensor is recomputed from "
    "them",
    "spill": "evict a tensor by writing its bytes to the spill tier, which is a file on a disk, "
    "or host memory for a GPU: recoup.budget(spill=...)",
    "fetch": "read a spilled tensor back from the spill tier",
}
"""Each term and its meaning."""
