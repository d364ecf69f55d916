// Measured: results of measurements that are made once per process.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>

namespace recoup::detail {

// Thread safe. Measurements run one at a time, because they would disturb each other.
template <typename Key, typename Result>
class Measured {
 public:
  // Returns the result for the key, from `measure` if none is known. Returns nullopt if `measure`
  // does; then the next call measures again.
  std::optional<Result> get(const Key& key, const std::function<std::optional<Result>()>& measure) {
    const std::lock_guard lock(mutex_);
    if (const auto known = results_.find(key); known != results_.end()) {
      return known->second;
    }
    const std::optional<Result> found = measure();
    if (found) {
      results_.emplace(key, *found);
    }
    return found;
  }

 private:
  std::mutex mutex_;
  std::map<Key, Result> results_;
};

}  // namespace recoup::detail
