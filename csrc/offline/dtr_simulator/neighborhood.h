// What it costs to get the evicted neighborhood of a storage back, as the DTR authors' simulator
// counts it. Not csrc/lineage's: there an op counts once for all its outputs, here a storage counts
// all of its views.
#pragma once

#include <memory>
#include <span>

#include "csrc/offline/dtr_simulator/state.h"

namespace recoup::detail {

class DtrNeighborhood {
 public:
  virtual ~DtrNeighborhood() = default;
  // An op was asked for that will return a tensor of it.
  virtual void on_ask(DtrStorageId /*id*/) {}
  virtual void on_evict(DtrStorageId /*id*/) {}
  // It became resident, for the first time too.
  virtual void on_return(DtrStorageId /*id*/) {}
  // Of a resident storage, its own cost excluded.
  virtual Nanoseconds cost(DtrStorageId id) = 0;
};

// `state` must outlive it.
std::unique_ptr<DtrNeighborhood> make_neighborhood(DtrScore::Cost cost, const DtrState& state);

}  // namespace recoup::detail
