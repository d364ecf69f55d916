// The cost of rematerializing the evicted neighborhood of a storage, as the DTR authors' simulator
// counts it. csrc/lineage differs: there an op counts once for all its outputs, here the cost of a
// storage includes all of its views.
#pragma once

#include <memory>
#include <span>

#include "csrc/offline/dtr/state.h"

namespace recoup::detail {

class DtrNeighborhood {
 public:
  virtual ~DtrNeighborhood() = default;
  // The program requested an op that returns a tensor of this storage.
  virtual void on_ask(DtrStorageId /*id*/) {}
  virtual void on_evict(DtrStorageId /*id*/) {}
  // The storage became resident, for the first time or again.
  virtual void on_return(DtrStorageId /*id*/) {}
  // The cost of the neighborhood of a resident storage, without the storage's own cost.
  virtual Nanoseconds cost(DtrStorageId id) = 0;
};

// `state` must outlive the result.
std::unique_ptr<DtrNeighborhood> make_neighborhood(DtrScore::Cost cost, const DtrState& state);

}  // namespace recoup::detail
