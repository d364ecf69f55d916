#include "csrc/engine/state/context.h"

#include <algorithm>
#include <stdexcept>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"
#include "csrc/engine/base/tier_store.h"

namespace recoup::detail {
namespace {

// What `bytes` are in whole units of alignment.
Bytes in_units(const Options& options, Bytes bytes) {
  return Bytes(bytes.count() & ~(options.alignment.count() - 1));
}

// `in_pool`: what a budget leaves for the pool.
Bytes addresses_in(const Options& options, Bytes in_pool) {
  return in_units(options, options.addresses > Bytes(0) ? options.addresses : in_pool);
}

PoolOptions pool_options(const Options& options) {
  if (options.budget <= Bytes(0)) {
    throw std::invalid_argument("a budget must be at least 1 byte");
  }
  if (options.block_size < Bytes(0)) {
    throw std::invalid_argument("a block size must not be negative");
  }
  if (const std::int64_t a = options.alignment.count(); a <= 0 || (a & (a - 1)) != 0) {
    throw std::invalid_argument("an alignment must be a power of two");
  }
  if (options.outside < Bytes(0) || options.outside >= options.budget) {
    throw std::invalid_argument(str_cat("memory in use before the scope takes ",
                                        recoup::to_string(options.outside), ", and the budget, ",
                                        recoup::to_string(options.budget), ", must be larger"));
  }
  return {.capacity = addresses_in(options, options.budget - options.outside),
          .segment_size = options.block_size,
          .alignment = options.alignment};
}

MovePrice price_of_moves(const Options& options, Device& device) {
  MovePrice price;
  if (options.move_ns_per_byte) {
    price.ns_per_byte = *options.move_ns_per_byte;
  } else if (options.cost_model == CostModel::kMeasured) {
    price.ns_per_byte = device.move_ns_per_byte().value_or(price.ns_per_byte);
  }
  return price;
}

TierSpeed speed_of_tier(const Options& options, Device& device) {
  TierSpeed speed;
  if (options.spill > Bytes(0) && options.cost_model == CostModel::kMeasured) {
    if (TierStore* const store = device.tier()) {
      speed = store->speed().value_or(speed);
    }
  }
  speed.write_ns_per_byte = options.spill_write_ns_per_byte.value_or(speed.write_ns_per_byte);
  speed.read_ns_per_byte = options.spill_read_ns_per_byte.value_or(speed.read_ns_per_byte);
  if (options.spill_request_ns) {
    speed.each = Nanoseconds(static_cast<std::int64_t>(*options.spill_request_ns));
  }
  return speed;
}

}  // namespace

Bytes Context::capacity_in(Bytes of_budget) const { return in_units(options, of_budget - outside); }

Bytes bounce_size(const Options& options, Bytes in_pool) {
  constexpr std::int64_t kPart = 256;
  constexpr Bytes kMost(32 << 20);
  const std::int64_t alignment = options.alignment.count();
  const std::int64_t units = in_pool.count() / kPart / alignment;
  return std::min(Bytes((units + 1) * alignment), kMost);
}

PoolOffset Context::addresses_end() const { return addresses_in(options, budget - outside); }

void Context::take_from_outside(Bytes size) {
  RECOUP_CHECK(size <= outside);
  outside -= size;
  charge_outside(-size);
}

Context::Context(const Options& all_options, Device& its_device)
    : options(all_options),
      budget(all_options.budget),
      outside(all_options.outside),
      aids(all_options.aids),
      device(its_device),
      pool(pool_options(all_options)),
      move_price(price_of_moves(all_options, its_device)),
      tier(all_options, speed_of_tier(all_options, its_device)),
      placer(all_options.placement, all_options.budget) {
  charges.external = outside;
}

}  // namespace recoup::detail
