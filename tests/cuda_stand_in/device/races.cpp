#include "tests/cuda_stand_in/device/races.h"

#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "tests/cuda_stand_in/device/settings.h"

namespace recoup::stand_in {
namespace {

constexpr int kMostReports = 20;

}  // namespace

void Races::split(Address at) {
  const auto next = parts_.upper_bound(at);
  if (next == parts_.begin()) {
    return;
  }
  const auto part = std::prev(next);
  if (part->first < at && at < part->second.end) {
    const Part right = part->second;
    part->second.end = at;
    parts_.emplace(at, right);
  }
}

void Races::report(const char* kind, const User& now, const User& other, Address at) {
  if (++found_ <= kMostReports) {
    std::fprintf(
        stderr,
        "*** CUDA stand-in: race (%s) at %#lx: %s on stream %lu is not ordered after %s on "
        "stream %lu\n",
        kind, static_cast<unsigned long>(at), now.what, static_cast<unsigned long>(now.stream),
        other.what, static_cast<unsigned long>(other.stream));
  }
  if (settings().abort_at_faults) {
    std::abort();
  }
}

void Races::use(StreamId stream, const VectorClock& before, const Use& use) {
  const User now{.stream = stream, .tick = before.at(stream) + 1, .what = use.what};
  const Address begin = address_of(use.memory);
  const Address end = begin + use.size;
  split(begin);
  split(end);
  for (Address at = begin; at < end;) {
    auto part = parts_.lower_bound(at);
    if (part == parts_.end() || part->first > at) {
      const Address hole = part == parts_.end() ? end : std::min(part->first, end);
      part = parts_.emplace(at, Part{.end = hole, .writer = {}, .readers = {}}).first;
    }
    Part& state = part->second;
    if (state.writer.stream != stream && !ordered(state.writer, before)) {
      report(use.write ? "write after write" : "read after write", now, state.writer, at);
    }
    if (use.write) {
      for (const User& reader : state.readers) {
        if (reader.stream != stream && !ordered(reader, before)) {
          report("write after read", now, reader, at);
        }
      }
      state.readers.clear();
      state.writer = now;
    } else {
      std::erase_if(state.readers, [&](const User& each) { return each.stream == stream; });
      state.readers.push_back(now);
    }
    at = state.end;
  }
}

void Races::forget(const void* memory, std::size_t size, const VectorClock& host,
                   const char* what) {
  const User now{.stream = 0, .tick = 0, .what = what};
  const Address begin = address_of(memory);
  split(begin);
  split(begin + size);
  auto part = parts_.lower_bound(begin);
  while (part != parts_.end() && part->first < begin + size) {
    if (!ordered(part->second.writer, host)) {
      report("given back while written", now, part->second.writer, part->first);
    }
    for (const User& reader : part->second.readers) {
      if (!ordered(reader, host)) {
        report("given back while read", now, reader, part->first);
      }
    }
    part = parts_.erase(part);
  }
}

}  // namespace recoup::stand_in
