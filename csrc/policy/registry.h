// What a file in policies/ says of the policies in it.
//
// The build lists the files of that folder; registry.cpp asks each for the table of its policies,
// which NAME.cpp gives in NAME_policies(). To add one: docs/add-a-policy.md.
#pragma once

#include <memory>
#include <span>

#include "recoup/policy.h"

namespace recoup::detail {

// DTR's prototype has both on (E.2). At the tightest budgets its authors turned sampling off.
inline constexpr PolicyOptions kPrototype = {.small_filter = true, .sampling = true};
// These stand beside DTR for comparison, and the paper compares them in its simulator, which scores
// every storage (section 4.1).
inline constexpr PolicyOptions kSimulator = {.small_filter = false, .sampling = false};
// The same victims, found without a scan.
inline constexpr PolicyOptions kInOrder = {
    .small_filter = false, .sampling = false, .kinetic = true};

template <class Policy>
std::unique_ptr<EvictionPolicy> make_policy(const PolicyOptions& options) {
  return std::make_unique<Policy>(options);
}

}  // namespace recoup::detail
