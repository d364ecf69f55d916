#include "csrc/cuda/reservation.h"

#include <algorithm>

#include "csrc/base/check.h"

namespace recoup::detail::cuda {
namespace {

// Each mapping is a call of the driver, and tens of thousands of them would be slow. But the larger
// a chunk, the less often all of it is free and can be returned.
constexpr std::int64_t kChunks = 512;

}  // namespace

Reservation::Chunk::Chunk(Runtime& runtime, int device, char* at, Bytes size)
    : runtime_(runtime),
      device_(device),
      at_(at),
      size_(size),
      mapped_(runtime.map(device, at, size)) {}

Reservation::Chunk::~Chunk() {
  if (mapped_) {
    runtime_.unmap(device_, at_, size_);
  }
}

Reservation::Reservation(Runtime& runtime, int device, Bytes addresses)
    : runtime_(runtime),
      device_(device),
      granularity_(runtime.granularity(device)),
      size_(whole_granules(addresses)) {
  RECOUP_CHECK(addresses > 0_B);
  base_ = static_cast<char*>(runtime_.reserve(device_, size_));
}

Reservation::~Reservation() {
  chunks_.clear();
  runtime_.unreserve(device_, base_, size_);
}

Bytes Reservation::whole_granules(Bytes size) const {
  const std::int64_t granule = granularity_.count();
  return Bytes((size.count() + granule - 1) / granule * granule);
}

bool Reservation::fill(Chunks& fresh, Bytes from, Bytes to, Bytes most) {
  while (from < to) {
    const Bytes size = std::min(most, to - from);
    const auto added = fresh.try_emplace(from, runtime_, device_, base_ + from.count(), size).first;
    if (!added->second.mapped()) {
      return false;
    }
    from += size;
  }
  return true;
}

bool Reservation::back(Bytes size) {
  RECOUP_CHECK(size >= 0_B && size <= size_);
  const Bytes end = whole_granules(size);
  const Bytes most = whole_granules(Bytes((end.count() + kChunks - 1) / kChunks));
  Chunks fresh;  // unmapped again if the end is not reached
  Bytes at{0};
  for (const auto& [offset, chunk] : chunks_) {
    if (offset >= end) {
      break;
    }
    if (!fill(fresh, at, offset, most)) {
      return false;
    }
    at = offset + chunk.size();
  }
  if (!fill(fresh, at, end, most)) {
    return false;
  }
  for (const auto& [offset, chunk] : fresh) {
    backed_ += chunk.size();
  }
  chunks_.merge(fresh);
  return true;
}

void Reservation::give_back(Bytes from, Bytes to) noexcept {
  auto it = chunks_.lower_bound(from);
  while (it != chunks_.end() && it->first + it->second.size() <= to) {
    backed_ -= it->second.size();
    it = chunks_.erase(it);
  }
}

void Reservation::check() const {
  RECOUP_CHECK(base_ != nullptr && size_ == whole_granules(size_));
  Bytes backed{0};
  Bytes end{0};  // end of the chunks so far
  for (const auto& [offset, chunk] : chunks_) {
    RECOUP_CHECK(chunk.mapped() && chunk.at() == base_ + offset.count());
    RECOUP_CHECK(chunk.size() > 0_B && offset == whole_granules(offset) &&
                 chunk.size() == whole_granules(chunk.size()));
    RECOUP_CHECK(offset >= end && offset + chunk.size() <= size_, "chunks overlap, or leave us");
    end = offset + chunk.size();
    backed += chunk.size();
  }
  RECOUP_CHECK(backed == backed_);
}

}  // namespace recoup::detail::cuda
