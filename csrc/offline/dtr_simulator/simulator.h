// A run of the DTR authors' simulator.
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include "csrc/offline/dtr_simulator/neighborhood.h"
#include "csrc/offline/dtr_simulator/state.h"

namespace recoup::detail {

class DtrSimulator {
 public:
  // `program` must outlive this.
  DtrSimulator(const DtrProgram& program, DtrScore score, Bytes budget, double max_time_ratio);
  SimulationResult run();

 private:
  // An op that is to define `tensor`. It holds locks on the arguments that it has.
  struct Frame {
    DtrTensorId tensor;
    bool replay = false;
    std::vector<DtrTensorId> missing;  // arguments, in their order
    std::size_t next = 0;              // of these
  };

  // All of these return false when the run ends here, with its status set.
  bool apply(const DtrStep& step);
  bool run_op(DtrOpId id);
  bool keep(DtrTensorId tensor);
  bool define(DtrTensorId tensor, bool replay);
  bool finish(const Frame& frame);
  bool make_room(const DtrOp& op);

  void open(DtrTensorId tensor, bool replay);
  void compute(DtrTensorId tensor);
  void release(DtrTensorId tensor);
  [[nodiscard]] DtrStorageId choose();
  [[nodiscard]] double score(DtrStorageId id);
  void evict(DtrStorageId id);
  void lock(DtrStorageId id);
  void unlock(DtrStorageId id);
  void remove_candidate(DtrStorageId id);

  const DtrProgram& program_;
  const DtrScore score_;
  const Bytes budget_;
  double replay_limit_ns_ = std::numeric_limits<double>::infinity();
  DtrState state_;
  std::unique_ptr<DtrNeighborhood> neighborhood_;
  std::vector<DtrStorageId> candidates_;  // resident without locks, in the order of becoming so
  std::vector<Frame> frames_;
  Bytes used_{0};
  Tick now_ = 1;  // cost of the ops that ran: their clock begins at 1
  SimulationResult result_;
};

}  // namespace recoup::detail
