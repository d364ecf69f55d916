// MemoryRoute: the way of the program's requests for memory to the pool of one session.
#pragma once

#include <memory>
#include <span>

#include "csrc/pool/pool.h"
#include "csrc/torch/backend/arena.h"

namespace recoup::detail {

// A scope calls enter() and leave() in turns, then close(), retire().
class MemoryRoute {
 public:
  MemoryRoute() = default;
  virtual ~MemoryRoute() = default;
  MemoryRoute(const MemoryRoute&) = delete;
  MemoryRoute& operator=(const MemoryRoute&) = delete;

  // The scope is in force from now on: requests of its threads go to the pool.
  virtual void enter() = 0;
  // The scope is suspended: it gets no new requests, but memory of the pool may still be freed.
  virtual void leave() = 0;
  // The session ends: when this returns, no thread is in a call of it, and no later call reaches
  // it.
  virtual void close() = 0;
  // To be called next: takes over the arena and the blocks that are still in use.
  virtual void retire(std::unique_ptr<Arena> arena, std::span<const BlockView> blocks) = 0;
};

}  // namespace recoup::detail
