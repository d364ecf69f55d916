// The calling thread's settings of floating-point arithmetic: rounding, denormal numbers, traps.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#error "recoup does not know the register with this processor's floating-point settings"
#endif

namespace recoup::detail {

#if defined(__x86_64__)
inline constexpr std::uint32_t kFloatFlags = 0x3f;  // of MXCSR: status flags, not settings

[[nodiscard]] inline std::uint32_t float_control() { return _mm_getcsr() & ~kFloatFlags; }
inline void set_float_control(std::uint32_t control) {
  _mm_setcsr((_mm_getcsr() & kFloatFlags) | control);
}
#else
// The upper half of FPCR is reserved. The status flags are in another register, FPSR.
[[nodiscard]] inline std::uint32_t float_control() {
  std::uint64_t control = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  return static_cast<std::uint32_t>(control);
}
inline void set_float_control(std::uint32_t control) {
  __asm__ volatile("msr fpcr, %0" : : "r"(std::uint64_t{control}));
}
#endif

}  // namespace recoup::detail
