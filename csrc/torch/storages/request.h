// Request: the entry of a call into a session's engine.
#pragma once

#include <optional>
#include <string_view>

#include "csrc/engine/program/engine.h"
#include "csrc/torch/storages/external_storages.h"

namespace recoup::detail {

// An op, the end of a storage, and each request of the user is one. The lock must be held during
// its lifetime. First it reports the paged storages that have ended, so that their end has the same
// place among requests as that of a storage in the pool. Last it reports the storages that have
// ended meanwhile.
class Request {
 public:
  // `what`: the op or activity that errors name; nullopt: that of the surrounding request. The text
  // must live until the request ends. `maker`: what is made from now on is attributed to it;
  // invalid: to the last one.
  Request(Engine& engine, ExternalStorages& external,
          std::optional<std::string_view> what = std::nullopt, MakerId maker = {})
      : engine_(engine), external_(external), before_(engine.running_op()) {
    external.sweep_paged();
    engine.set_running_op(what.value_or(before_));
    if (maker.valid()) {
      engine.set_maker(maker);
    }
  }
  struct Begun {};
  // Ends an op's request, after its kernel.
  Request(Begun, Engine& engine, ExternalStorages& external)
      : engine_(engine), external_(external) {}
  ~Request() noexcept(false) {
    if (!goes_on_) {
      engine_.set_running_op(before_);
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
  const std::string_view before_;
  bool goes_on_ = false;
};

}  // namespace recoup::detail
