#include "tests/cuda_stand_in/device/settings.h"

#include <cstdlib>

namespace recoup::stand_in {
namespace {

std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == 0) {
    return otherwise;
  }
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text, &end, 0);
  switch (*end) {
    case 'K':
      return value << 10;
    case 'M':
      return value << 20;
    case 'G':
      return value << 30;
    default:
      return value;
  }
}

Settings from_environment() {
  Settings made;
  made.devices = static_cast<int>(number("CUDA_STAND_IN_DEVICES", 1));
  made.memory = number("CUDA_STAND_IN_MEMORY", made.memory);
  made.pinned = number("CUDA_STAND_IN_PINNED", made.pinned);
  made.synchronous = number("CUDA_STAND_IN_SYNCHRONOUS", 0) != 0;
  made.host_only = number("CUDA_STAND_IN_HOST_ONLY", 0) != 0;
  made.seed = number("CUDA_STAND_IN_SEED", made.seed);
  made.abort_at_faults = number("CUDA_STAND_IN_ABORT", 0) != 0;
  made.log = static_cast<int>(number("CUDA_STAND_IN_LOG", 0));
  return made;
}

}  // namespace

const Settings& settings() {
  static const Settings made = from_environment();
  return made;
}

}  // namespace recoup::stand_in
