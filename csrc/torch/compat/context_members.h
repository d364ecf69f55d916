// The private members of at::Context that store a program's settings.
//
// Note [Raw settings]
// ~~~~~~~~~~~~~~~~~~~
// A getter of at::Context may return the effective setting instead of the stored one:
// float32Precision looks at the backend's setting and then at the generic one. Restoring its result
// with the setter would make an inherited setting explicit, and later changes by the program would
// be ignored. So settings are read and written as they are stored. An explicit instantiation may
// name a private member. All members from the first plain one to the map are plain data, so two
// names are enough, and a setting that a later PyTorch adds among them is covered too.
// test_settings.py reads the header and fails when a setting is added elsewhere.
#pragma once

#include <ATen/Context.h>

namespace recoup::detail {

template <class Name, auto kMember>
struct ContextMember {
  friend constexpr auto member_of(Name) { return kMember; }
};

struct FirstSetting {
  friend constexpr auto member_of(FirstSetting);
};
struct Float32Precisions {
  friend constexpr auto member_of(Float32Precisions);
};

template struct ContextMember<FirstSetting, &at::Context::enabled_cudnn>;
template struct ContextMember<Float32Precisions, &at::Context::fp32_precision>;

}  // namespace recoup::detail
