#include "csrc/cuda/private_pools.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"
#include "csrc/cuda/error.h"

namespace recoup::detail::cuda {
namespace {

std::string name_of(PrivatePools::Id id) {
  return str_cat("memory pool (", id.first, ", ", id.second, ")");
}

}  // namespace

PrivatePools::PrivatePools(Runtime& runtime, int device) : runtime_(runtime), device_(device) {}

std::vector<PrivatePools::Filling>::iterator PrivatePools::find_filling(Id id) {
  return std::find_if(filling_.begin(), filling_.end(),
                      [id](const Filling& filling) { return filling.id == id; });
}

void PrivatePools::begin(Id id, Filter filter) {
  if (find_filling(id) != filling_.end()) {
    throw std::logic_error(str_cat(name_of(id), " is being filled already"));
  }
  filling_.push_back({.id = id, .filter = std::move(filter)});
  try {
    ++pools_.try_emplace(id, runtime_, device_).first->second.users;
  } catch (...) {
    filling_.pop_back();
    throw;
  }
}

void PrivatePools::end(Id id) {
  const auto found = find_filling(id);
  if (found == filling_.end()) {
    throw std::logic_error(str_cat(name_of(id), " is not being filled"));
  }
  filling_.erase(found);
}

void PrivatePools::release(Id id) {
  const auto found = pools_.find(id);
  if (found == pools_.end() || found->second.users == 0) {
    throw std::logic_error(str_cat(name_of(id), " is not in use, so it cannot be released"));
  }
  --found->second.users;
  give_back();
}

void PrivatePools::give_back() {
  if (!filling()) {
    give_back_now();
  }
}

void PrivatePools::give_back_now() {
  for (auto at = pools_.begin(); at != pools_.end();) {
    auto& [cache, users] = at->second;
    if (users > 0 || find_filling(at->first) != filling_.end()) {
      ++at;
      continue;
    }
    try {
      cache.empty();
    } catch (const CudaError&) {
      // It stays, which is safe: graphs release their pools in destructors.
    }
    at = cache.reserved() == Bytes(0) ? pools_.erase(at) : std::next(at);
  }
}

// The last begun first: PyTorch does not end a capture that has failed, and the filter of a graph
// that is gone should not be asked.
Cache* PrivatePools::filled_by(Stream stream) {
  const auto found = std::find_if(filling_.rbegin(), filling_.rend(),
                                  [&](const Filling& filling) { return filling.filter(stream); });
  return found == filling_.rend() ? nullptr : &pools_.at(found->id).cache;
}

Cache* PrivatePools::owner(const void* memory) {
  const auto found = std::find_if(pools_.begin(), pools_.end(), [memory](const auto& pool) {
    return pool.second.cache.owns(memory);
  });
  return found == pools_.end() ? nullptr : &found->second.cache;
}

Bytes PrivatePools::reserved() const {
  Bytes sum{0};
  for (const auto& [id, pool] : pools_) {
    sum += pool.cache.reserved();
  }
  return sum;
}

Bytes PrivatePools::used() const {
  Bytes sum{0};
  for (const auto& [id, pool] : pools_) {
    sum += pool.cache.used();
  }
  return sum;
}

void PrivatePools::check() const {
  for (const auto& [id, pool] : pools_) {
    pool.cache.check();
    RECOUP_CHECK(pool.users >= 0, name_of(id), " has ", pool.users, " users");
  }
  for (auto at = filling_.begin(); at != filling_.end(); ++at) {
    RECOUP_CHECK(pools_.contains(at->id), name_of(at->id), " is filled and not there");
    RECOUP_CHECK(std::none_of(std::next(at), filling_.end(),
                              [at](const Filling& other) { return other.id == at->id; }),
                 name_of(at->id), " is filled twice");
  }
}

}  // namespace recoup::detail::cuda
