#include "csrc/simulator/noise.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <stdexcept>
#include <string>

#include "csrc/base/hash.h"

namespace recoup::detail {
namespace {

constexpr double kMostPercent = 200;
constexpr double kMostNoisyCost = 1e15;  // nanoseconds

std::vector<Bytes> sizes_of_storages(const Trace& trace) {
  std::vector<Bytes> sizes;
  for (const TraceEvent& event : trace.events) {
    switch (event.kind) {
      case TraceEvent::Kind::kExternal:
      case TraceEvent::Kind::kAdopt:
        sizes.push_back(event.size);
        break;
      case TraceEvent::Kind::kOp:
        for (const TraceFresh& fresh : trace.fresh_of(trace.ops[event.index])) {
          sizes.push_back(fresh.nbytes);
        }
        break;
      default:
        break;
    }
  }
  return sizes;
}

}  // namespace

CostNoise::CostNoise(const Noise& noise, const Trace& trace)
    : trace_(trace), spread_(noise.percent / 100), state_(hash_with(1, noise.seed)) {
  if (!(noise.percent >= 0 && noise.percent <= kMostPercent)) {
    throw std::invalid_argument("noise must be from 0 to 200 percent");
  }
  const std::vector<Bytes> sizes = sizes_of_storages(trace);
  const auto add = [](CostKey& kind, Bytes size) {
    kind = hash_with(kind, static_cast<std::uint64_t>(size.count()));
  };
  for (const TraceOp& op : trace.ops) {
    CostKey& kind = kinds_.emplace_back(std::hash<std::string>()(trace.names[op.name]));
    for (const TraceOperand& operand : trace.operands_of(op)) {
      add(kind, sizes[operand.storage]);
    }
    for (const TraceFresh& fresh : trace.fresh_of(op)) {
      add(kind, fresh.nbytes);
    }
    kind |= 1;  // 0 would mean that nothing is learned
  }
}

double CostNoise::uniform() {
  state_ += 0x9e3779b97f4a7c15ULL;
  const std::uint64_t bits = hash_with(hash_with(state_, 0), state_ >> 17);
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
}

// The cost times e^N(0, percent / 100), by the Box-Muller transform.
Measurement CostNoise::measure(std::uint32_t op) {
  const double radius = std::sqrt(-2 * std::log(uniform()));
  const double normal = radius * std::cos(2 * std::numbers::pi * uniform());
  const auto cost = static_cast<double>(trace_.ops[op].cost.count());
  const double took = std::min(cost * std::exp(spread_ * normal), kMostNoisyCost);
  return {.key = kinds_[op], .took = Nanoseconds(static_cast<std::int64_t>(took))};
}

}  // namespace recoup::detail
