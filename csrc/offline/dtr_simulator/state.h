// What is where in a run of the DTR authors' simulator.
#pragma once

#include <vector>

#include "recoup/dtr_simulator.h"

namespace recoup::detail {

struct DtrStorageState {
  bool resident = false;
  bool kept = false;         // for good: a constant, or wanted in the end
  std::int32_t locks = 0;    // of ops that wait or run, and one if it is kept
  std::int32_t holders = 0;  // of the program
  Tick last_access = 0;
  Nanoseconds cost{0};  // of the ops that made its tensors so far, each once
};

struct DtrState {
  explicit DtrState(const DtrProgram& of)
      : program(of), storages(of.storage_count()), defined(of.tensor_count()) {}

  DtrStorageState& operator[](DtrStorageId id) { return storages[id.index()]; }
  const DtrStorageState& operator[](DtrStorageId id) const { return storages[id.index()]; }
  DtrStorageState& operator[](DtrTensorId id) { return (*this)[program[id].storage]; }

  // Calls function(storage) for the neighbors so far. What the op which is asked for will make is
  // among them.
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
  std::vector<bool> defined;  // of a tensor: its storage is resident and its op has run since
  DtrOpId last_op{0};         // that the program has asked for
};

}  // namespace recoup::detail
