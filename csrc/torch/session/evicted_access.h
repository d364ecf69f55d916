// Access to evicted storages by code that is not an op.
#pragma once

namespace recoup::detail {

// Note [Questions outside of ops]
// Components of PyTorch in C++ (DDP's Reducer) keep tensors and request their addresses between
// ops. recoup does not see this, and an evicted storage refuses. The Reducer asks whether a
// gradient shares memory with a bucket (Tensor::is_alias_of), which needs no bytes: an evicted
// storage had a block of its own, so it shares memory with no other storage. PyTorch's library c10
// answers this question, and raises the error for all other accesses. recoup replaces both
// functions in the libraries that call them. The first then handles evicted storages, and the
// second adds the name of the calling function to the error.
//
// To be called when a scope begins.
void answer_questions_outside_ops();

// To be called before an access to an evicted tensor of an open scope is refused. If this thread is
// outside of the scope, the interpreter tells the program, at the first access in each scope: the
// thread may ignore the error, and another thread of the program may wait for it forever.
void tell_of_outside_access();

}  // namespace recoup::detail
