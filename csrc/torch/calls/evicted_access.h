// What code that is no op may ask of a storage whose bytes are evicted.
#pragma once

namespace recoup::detail {

// Note [Questions outside of ops]
// Components of PyTorch in C++ (DDP's Reducer) keep tensors, and ask for their addresses between
// ops. Nothing shows that they do, and an evicted storage refuses. The Reducer asks whether a
// gradient shares memory with a bucket (Tensor::is_alias_of), which needs no bytes: an evicted
// storage had a block of its own, so it shares memory with no other storage. PyTorch's library c10
// answers this question, and raises the error for all others. Both functions are replaced by ours
// for the libraries that call them: the first knows evicted storages, the second adds to the error
// which function asked.
//
// To be called when a scope begins.
void answer_questions_outside_ops();

}  // namespace recoup::detail
