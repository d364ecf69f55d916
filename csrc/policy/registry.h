// Helpers for the tables of policies in policies/.
//
// The build lists the files of that folder. registry.cpp takes the table of each NAME.cpp from
// NAME_policies(). To add a policy: docs/maintainers/add-a-policy.md.
#pragma once

#include <memory>
#include <span>

#include "recoup/policy.h"

namespace recoup::detail {

// DTR's prototype has both on (E.2). At the tightest budgets its authors turned sampling off.
inline constexpr PolicyOptions kPrototype = {.small_filter = true, .sampling = true};
// For policies that the paper compares with DTR in its simulator, which scores every storage
// (section 4.1).
inline constexpr PolicyOptions kSimulator = {.small_filter = false, .sampling = false};
// Finds the victims of kSimulator without a scan.
inline constexpr PolicyOptions kInOrder = {
    .small_filter = false, .sampling = false, .kinetic = true};

template <class Policy>
std::unique_ptr<EvictionPolicy> make_policy(const PolicyOptions& options) {
  return std::make_unique<Policy>(options);
}

}  // namespace recoup::detail
