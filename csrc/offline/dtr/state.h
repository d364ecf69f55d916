// The state of a run of the DTR authors' simulator.
#pragma once

#include <vector>

#include "recoup/offline/dtr.h"

namespace recoup::detail {

struct DtrStorageState {
  bool resident = false;
  bool kept = false;         // never evicted: a constant, or needed at the end
  std::int32_t locks = 0;    // by pending and running ops; one more if kept
  std::int32_t holders = 0;  // in the program
  Tick last_access = 0;
  Nanoseconds cost{0};  // sum over the ops that made its tensors so far, each once
};

struct DtrState {
  explicit DtrState(const DtrProgram& of)
      : program(of), storages(of.storage_count()), defined(of.tensor_count()) {}

  DtrStorageState& operator[](DtrStorageId id) { return storages[id.index()]; }
  const DtrStorageState& operator[](DtrStorageId id) const { return storages[id.index()]; }
  DtrStorageState& operator[](DtrTensorId id) { return (*this)[program[id].storage]; }

  // Calls function(storage) for the neighbors of all ops up to last_op, which is included.
  template <class Function>
  void for_each(const std::vector<DtrNeighbor>& neighbors, Function&& function) const {
    for (const DtrNeighbor& neighbor : neighbors) {
      if (neighbor.op > last_op) {
        break;
      }
      function(neighbor.storage);
    }
  }

  const DtrProgram& program;
  std::vector<DtrStorageState> storages;
  // by tensor: its storage is resident and its op has run since the last eviction
  std::vector<bool> defined;
  DtrOpId last_op{0};  // the last op that the program requested
};

}  // namespace recoup::detail
