// Importer: brings storages that were made outside into the pool.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "csrc/engine/state/context.h"
#include "csrc/engine/state/pages.h"
#include "csrc/engine/state/values.h"
#include "csrc/engine/tier/spiller.h"

namespace recoup::detail {

// Note [Storages from outside]
// A model that was made before the scope is charged and stays where it is: its memory is not the
// pool's, so the engine cannot move or free it. With a spill tier it does not have to stay. When
// memory is short for the first time, storages are brought in while they fit: each is copied into
// the pool or the tier, and its own memory is freed. Then it holds a non-recomputable value like
// any other. The largest storage comes first. A storage is spilled if there is no room for two
// copies of it; its freed bytes are room for the copies of the others.
//
// Storages stay outside if other code may use their address: escaped and pinned ones. Code that
// registers a storage pins it if it must stay.
//
// Storages among Options::outside are imported by segments, see Note [Segments]: all storages of a
// segment are copied to the pool, or all to the tier. Then their memory is freed, and the pool
// grows by the segment.
class Importer {
 public:
  struct Parts {
    Values& values;
    Spiller& spiller;
    Pages& pages;
  };
  // All arguments must outlive this object.
  Importer(Context& context, const Parts& parts);

  // Called when memory is short. Brings in all storages that may move. Those that a running op uses
  // are left for the next call. False: nothing was brought in.
  bool bring_in();

  void set_segment(const SegmentChange& change);
  // Asks the device for changes of segments, if storages in segments are outside. Not part of
  // bring_in(): a trace lists the events during an op before that op.
  void update_segments();

 private:
  using Group = std::vector<ValueId>;
  // The storages of a segment that are outside.
  struct Segment {
    Group values;
    bool stays = false;  // other code may use the address of one of them
    bool used = false;   // a running op uses one of them
  };
  [[nodiscard]] bool may_leave(const Value& value) const;
  [[nodiscard]] bool used_by_op(const Value& value) const;
  [[nodiscard]] std::vector<ValueId> importable() const;
  [[nodiscard]] bool import(ValueId id);
  [[nodiscard]] NewBlock block_for(Bytes size);
  void copy_to(BlockId block, ValueId id);
  void put(ValueId id, NewBlock block);
  void count(Bytes size);

  [[nodiscard]] std::map<SegmentId, Segment> segments() const;
  [[nodiscard]] bool import_segments();
  [[nodiscard]] bool hold(const Group& group) const;
  [[nodiscard]] bool import_group(const Group& group);
  [[nodiscard]] std::vector<NewBlock> blocks_for(const Group& group);
  void take_segment(SegmentId segment);

  Context& context_;
  Lineage& lineage_;
  Values& values_;
  Spiller& spiller_;
  Pages& pages_;
  std::optional<Bytes> left_;  // bytes that stay outside; nullopt: some may move later
};

}  // namespace recoup::detail
