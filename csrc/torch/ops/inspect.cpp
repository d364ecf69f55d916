// Queries for the tests of recoup's assumptions about PyTorch.
#include <ATen/core/dispatch/Dispatcher.h>

#include <stdexcept>

#include "csrc/base/strings.h"
#include "csrc/torch/compat/settings.h"
#include "csrc/torch/ops/traits_table.h"
#include "recoup/bindings.h"

namespace recoup {

ReplayTraits replay_traits(const std::string& name, const std::string& overload) {
  const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!op) {
    throw std::invalid_argument(detail::str_cat("recoup: no op '", name, "' with overload '",
                                                overload, "' in this PyTorch"));
  }
  const detail::OpTraits& traits = detail::TraitsTable::instance().of(*op, detail::Reach::kHost);
  return {.seen = traits.kind == detail::OpKind::kRecorded,
          .repeatable = traits.repeatable,
          .verifiable = traits.verifiable,
          .random = traits.random,
          .thread_order = traits.thread_order,
          .with_generator =
              traits.with_generator ? traits.with_generator->operator_name().overload_name : ""};
}

std::uint64_t settings_number() {
  return reinterpret_cast<std::uintptr_t>(&detail::Settings::current(c10::DeviceType::CPU));
}

}  // namespace recoup
