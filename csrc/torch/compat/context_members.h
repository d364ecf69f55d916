// The private members of at::Context that hold what a program has set.
//
// Note [Raw settings]
// ~~~~~~~~~~~~~~~~~~~
// A getter of at::Context may say what a setting amounts to, not what it is: float32Precision looks
// at the backend's and then at the generic one. To put such an answer back with the setter would
// make an inherited setting an explicit one, and what the program sets later would be ignored. So
// settings are read and written as they are stored. An explicit instantiation may name a private
// member; from the first plain member to the map all are plain data, so two names are enough, and a
// setting that a later PyTorch adds among them is covered too. test_settings.py reads the header
// and fails when one is added elsewhere.
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
