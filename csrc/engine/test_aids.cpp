// What tests switch on: see TestAids. Nothing here runs when they have not.
#include "recoup/test_aids.h"

#include <charconv>
#include <stdexcept>
#include <vector>

#include "csrc/base/strings.h"
#include "csrc/engine/engine.h"

namespace recoup {
namespace {

[[noreturn]] void throw_unknown(std::string_view word) {
  throw std::invalid_argument(
      detail::str_cat("'", word,
                      "' is no test aid; they are poison, shake, fail-allocation=K, fail-replay=K, "
                      "force-eviction=K and delay=MICROSECONDS with numbers from 1 on, and "
                      "persistent beside one with a K"));
}

std::int64_t parse_count(std::string_view word, std::string_view digits) {
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  if (error != std::errc() || end != digits.data() + digits.size() || count < 1) {
    throw_unknown(word);
  }
  return count;
}

}  // namespace

TestAids parse_test_aids(std::string_view text) {
  TestAids aids;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    const std::size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    if (equals == std::string_view::npos) {
      bool* const flag = name == "poison"       ? &aids.poison
                         : name == "shake"      ? &aids.shake
                         : name == "persistent" ? &aids.persistent
                                                : nullptr;
      if (flag == nullptr) {
        throw_unknown(word);
      }
      *flag = true;
    } else {
      std::int64_t* const count = name == "fail-allocation"  ? &aids.fail_allocation
                                  : name == "fail-replay"    ? &aids.fail_replay
                                  : name == "force-eviction" ? &aids.force_eviction
                                  : name == "delay"          ? &aids.delay
                                                             : nullptr;
      if (count == nullptr) {
        throw_unknown(word);
      }
      *count = parse_count(word, word.substr(equals + 1));
    }
    if (comma == std::string_view::npos) {
      break;
    }
    text.remove_prefix(comma + 1);
  }
  if (aids.persistent && aids.fail_allocation + aids.fail_replay + aids.force_eviction == 0) {
    throw_unknown("persistent");
  }
  return aids;
}

}  // namespace recoup

namespace recoup::detail {

void Engine::set_test_aids(const TestAids& aids) {
  options_.aids = aids;
  disturbed_ = aids.any();
}

bool Engine::strikes(std::int64_t at, std::int64_t count) const {
  return at > 0 && (count == at || (options_.aids.persistent && count > at));
}

// Within a replay everything would be made again for each of the ops that need it: their number
// doubles with every residual. So there only what is asked for by count is evicted.
void Engine::disturb_allocation(Bytes size) {
  const TestAids& aids = options_.aids;
  const std::int64_t count = stats_.allocations;
  if (strikes(aids.fail_allocation, count)) {
    throw_out_of_budget(size, str_cat("a test aid lets allocation ", count, " fail"));
  }
  const bool forced = strikes(aids.force_eviction, count);
  if ((forced && count == aids.force_eviction) ||
      ((forced || aids.shake) && replayer_ == nullptr)) {
    evict_everything();
  }
  if (aids.shake) {
    move_everything();
  }
}

void Engine::disturb_replay(OpId op) {
  if (strikes(options_.aids.fail_replay, ++begun_replays_)) {
    throw InjectedFault(str_cat("recoup: a test aid lets replay ", begun_replays_,
                                " fail: ", device_.name(lineage_[op].payload)));
  }
}

// To the tightest hole or, where there is none, by as much as is free beside it; to the low end and
// the high end in turn, so that what has only one hole to go to comes back.
void Engine::move_everything() {
  const Zone zone = moved_low_ ? Zone::kHigh : Zone::kLow;
  moved_low_ = !moved_low_;
  std::vector<BlockId> blocks;
  for (BlockId id = pool_.first(); id.valid(); id = pool_.next(id)) {
    if (const BlockView block = pool_.view(id); !block.free && movable(block.owner)) {
      blocks.push_back(id);
    }
  }
  for (BlockId block : blocks) {
    const std::optional<PoolOffset> to = another_place(block, zone);
    const Move move[] = {{.block = block, .to = to.value_or(Bytes(0))}};
    if (to && !move_all(move)) {
      return;  // what it was may have freed others of them
    }
  }
}

std::optional<PoolOffset> Engine::another_place(BlockId id, Zone zone) {
  const BlockView block = pool_.view(id);
  if (const std::optional<BlockId> hole = pool_.allocate(block.size, zone)) {
    const PoolOffset found = pool_.offset(*hole);
    pool_.free(*hole);
    return found;
  }
  if (const BlockId next = pool_.next(id); next.valid()) {
    const BlockView after = pool_.view(next);
    if (after.free && !pool_.starts_segment(after.offset)) {
      return block.offset + after.size;
    }
  }
  if (const BlockId previous = pool_.previous(id); previous.valid()) {
    const BlockView before = pool_.view(previous);
    if (before.free && !pool_.starts_segment(block.offset)) {
      return before.offset;
    }
  }
  return std::nullopt;
}

// Where a block was before it moved; the ranges may overlap.
void Engine::poison_old(PoolOffset from, PoolOffset to, Bytes size) {
  if (!options_.aids.poison) {
    return;
  }
  const PoolOffset begin = to < from ? std::max(from, to + size) : from;
  const PoolOffset end = to < from ? from + size : std::min(from + size, to);
  device_.poison(begin, end - begin);
}

}  // namespace recoup::detail
