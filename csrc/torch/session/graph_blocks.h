// GraphBlocks: the memory of a session's pool that CUDA graphs use.
#pragma once

#include <boost/icl/interval_map.hpp>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "csrc/torch/storages/storage_records.h"
#include "recoup/types.h"

namespace recoup::detail {

struct GraphBlock {
  void* address = nullptr;
  Bytes size{0};
};

// Libraries and kernels keep blocks that belong to no tensor that recoup has received: workspaces
// of cuBLAS, and the seed that a generator has for a graph. A graph that was captured with them
// uses them as long as it lives. So such a block is passed to the graph when its owner frees it. If
// a tensor turns out to have it, the tensor escapes when recoup receives it: Note [Views of
// memory].
class GraphBlocks {
 public:
  using Ranges = std::vector<AddressRange>;
  using Heir = std::vector<GraphBlock>;

  // `records` must outlive this object.
  explicit GraphBlocks(StorageRecords& records) : records_(records) {}

  [[nodiscard]] bool empty() const { return users_.empty(); }
  // A graph uses the block. `heir` gets it when its owner frees it, and must stay at its place
  // until remove().
  void add(const GraphBlock& block, Heir& heir) {
    users_.emplace(block.address, User{.size = block.size, .heir = &heir});
    records_.add_view(range(block.address, block.size));
  }
  // The graph of the heir is gone.
  void remove(const Heir& heir) {
    for (auto at = users_.begin(); at != users_.end();) {
      at = at->second.heir == &heir ? erase(at) : std::next(at);
    }
  }
  // The owner of the block frees it. Whether it belongs to a graph now.
  [[nodiscard]] bool pass_on(void* address) {
    const auto user = users_.find(address);
    if (user == users_.end()) {
      return false;
    }
    user->second.heir->push_back({.address = address, .size = user->second.size});
    erase(user);
    return true;
  }

  // Ranges of the pool that one more graph uses, or one less.
  void add_use(const Ranges& ranges) {
    for (const AddressRange& each : ranges) {
      uses_.add({interval(each), 1});
    }
  }
  void remove_use(const Ranges& ranges) {
    for (const AddressRange& each : ranges) {
      uses_.subtract({interval(each), 1});
    }
  }
  // Bytes that at least one graph uses.
  [[nodiscard]] Bytes used() const {
    return Bytes(static_cast<std::int64_t>(boost::icl::length(uses_)));
  }

 private:
  using Uses = boost::icl::interval_map<std::uintptr_t, int>;  // graphs by address
  struct User {
    Bytes size{0};
    Heir* heir = nullptr;
  };
  using Users = std::multimap<void*, User>;

  static Uses::interval_type interval(const AddressRange& range) {
    return Uses::interval_type::right_open(range.from, range.to);
  }
  static AddressRange range(const void* address, Bytes size) {
    return {address, static_cast<std::size_t>(size.count())};
  }
  Users::iterator erase(Users::iterator user) {
    records_.remove_view(range(user->first, user->second.size));
    return users_.erase(user);
  }

  StorageRecords& records_;
  Users users_;  // by address; a block may have several
  Uses uses_;
};

}  // namespace recoup::detail
