// Request: the entry of a call into a session's engine.
#pragma once

#include <exception>
#include <optional>
#include <string_view>

#include "csrc/engine/program/engine.h"
#include "csrc/torch/storages/external_storages.h"

namespace recoup::detail {

// First it reports the storages in overflow memory that have ended, so that their end has the same
// place among requests as that of a storage in the pool. Last it reports the storages that have
// ended meanwhile; after an error, the next request does that. It begins and ends
// under the session's lock.
class Request {
 public:
  Request(Engine& engine, ExternalStorages& external) : engine_(engine), external_(external) {
    external.sweep_overflow();
  }
  // `what`: the op or activity that errors name. The text must live until the request ends, and the
  // thread must have the turn. `maker`: what is made from now on is attributed to it; invalid: to
  // the last one.
  Request(Engine& engine, ExternalStorages& external, std::string_view what, MakerId maker = {})
      : Request(engine, external) {
    before_ = engine.running_op();
    engine.set_running_op(what);
    if (maker.valid()) {
      engine.set_maker(maker);
    }
  }
  struct Begun {};
  // Ends an op's request, after its kernel.
  Request(Begun, Engine& engine, ExternalStorages& external)
      : engine_(engine), external_(external) {}
  ~Request() noexcept(false) {
    if (goes_on_) {
      return;
    }
    if (before_) {
      engine_.set_running_op(*before_);
    }
    if (external_.has_ended() && std::uncaught_exceptions() == exceptions_) [[unlikely]] {
      external_.collect();
    }
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  // Lets the request go on after the block: the kernel of its op runs next.
  void go_on() { goes_on_ = true; }

 private:
  Engine& engine_;
  ExternalStorages& external_;
  std::optional<std::string_view> before_;  // what errors named before; nullopt: it stays
  const int exceptions_ = std::uncaught_exceptions();
  bool goes_on_ = false;
};

}  // namespace recoup::detail
