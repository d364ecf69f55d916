#include "csrc/engine/state/context.h"

#include <algorithm>
#include <stdexcept>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"

namespace recoup::detail {
namespace {

Bytes addresses_in(const Options& options) {
  const Bytes addresses =
      options.addresses > Bytes(0) ? options.addresses : options.budget - options.outside;
  return capacity_in(options, addresses + options.outside);
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
  return {.capacity = addresses_in(options),
          .segment_size = options.block_size,
          .alignment = options.alignment};
}

MovePrice price_of_moves(const Options& options, Device& device) {
  MovePrice price;
  if (options.move_ns_per_byte) {
    price.a_byte = *options.move_ns_per_byte;
  } else if (options.cost_model == CostModel::kMeasured) {
    price.a_byte = device.move_ns_per_byte().value_or(price.a_byte);
  }
  return price;
}

TierSpeed speed_of_tier(const Options& options, Device& device) {
  TierSpeed speed;
  if (options.spill > Bytes(0) && options.cost_model == CostModel::kMeasured) {
    speed = device.tier_speed().value_or(speed);
  }
  speed.write_ns_per_byte = options.spill_write_ns_per_byte.value_or(speed.write_ns_per_byte);
  speed.read_ns_per_byte = options.spill_read_ns_per_byte.value_or(speed.read_ns_per_byte);
  if (options.spill_request_ns) {
    speed.each = Nanoseconds(static_cast<std::int64_t>(*options.spill_request_ns));
  }
  return speed;
}

}  // namespace

Bytes capacity_in(const Options& options, Bytes budget) {
  return Bytes((budget - options.outside).count() & ~(options.alignment.count() - 1));
}

Bytes bounce_size(const Options& options) {
  constexpr std::int64_t kPart = 256;
  constexpr Bytes kMost(32 << 20);
  const std::int64_t alignment = options.alignment.count();
  const std::int64_t units = (options.budget - options.outside).count() / kPart / alignment;
  return std::min(Bytes((units + 1) * alignment), kMost);
}

PoolOffset Context::addresses_end() const { return addresses_in(options); }

void Context::take_from_outside(Bytes size) {
  RECOUP_CHECK(size <= options.outside);
  options.outside -= size;
  charge_outside(-size);
}

Context::Context(const Options& all_options, Device& its_device)
    : options(all_options),
      device(its_device),
      pool(pool_options(all_options)),
      move_price(price_of_moves(all_options, its_device)),
      tier(all_options, speed_of_tier(all_options, its_device)),
      placer(all_options.placement, all_options.budget) {
  charges.external = options.outside;
}

}  // namespace recoup::detail
