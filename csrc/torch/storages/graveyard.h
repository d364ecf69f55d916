// Objects that died while the engine's lock was held.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "csrc/torch/ops/payload.h"
#include "csrc/torch/storages/storage_records.h"

namespace recoup::detail {

// Destroyed after the lock is released, because their destructors may call recoup again.
class Graveyard {
 public:
  void add(StoragePtr storage) {
    if (storage) {
      storages_.push_back(std::move(storage));
    }
  }
  void add(std::unique_ptr<Payload> payload) { payloads_.push_back(std::move(payload)); }
  [[nodiscard]] bool empty() const { return payloads_.empty() && storages_.empty(); }

 private:
  std::vector<std::unique_ptr<Payload>> payloads_;
  std::vector<StoragePtr> storages_;
};

}  // namespace recoup::detail
