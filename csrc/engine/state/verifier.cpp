#include "csrc/engine/state/verifier.h"

#include <algorithm>

#include "csrc/base/strings.h"
#include "recoup/errors.h"

namespace recoup::detail {

bool Verifier::defined(const OpRecord& record) const {
  return options_.check_replays && record.verifiable &&
         std::all_of(record.inputs.begin(), record.inputs.end(), [this](ValueId input) {
           return !lineage_[input].recomputable() || hashes_.contains(input);
         });
}

void Verifier::remember(ValueId id, const Location& at, const OpRecord& record,
                        std::size_t result) {
  hashes_[id] = {.hash = device_.hash(at, lineage_[id].nbytes, record.payload, result),
                 .result = result};
}

void Verifier::compare(ValueId id, const Location& at, OpId op) {
  const auto found = hashes_.find(id);
  if (found == hashes_.end()) {
    return;
  }
  ++stats_.replay_checks;
  const auto& [hash, result] = found->second;
  if (device_.hash(at, lineage_[id].nbytes, lineage_[op].payload, result) != hash) {
    throw ReplayDiffers(str_cat("recoup: a replay of ", device_.name(lineage_[op].payload),
                                " gave other bits than its first run (output of ",
                                to_string(lineage_[id].nbytes),
                                "). If it is a custom op, do not name it in recoup.allow_replay; "
                                "else please report it"));
  }
}

}  // namespace recoup::detail
