// What kernels read from the process and from their thread in addition to their arguments.
#pragma once

#include <ATen/Context.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "csrc/torch/compat/interpreter.h"

namespace recoup::detail {

// A snapshot of everything that a program can set and that may change a kernel's bits. No list says
// which op reads which setting, so each record has a pointer to a complete snapshot.
class Settings {
 public:
  // The current settings, for an op on a device of the type. Equal snapshots are one object, which
  // is never destroyed: there is one for each combination of settings that the program uses.
  static const Settings& current(c10::DeviceType device);
  // Applies the settings of the process, as far as they have changed. To be called while the thread
  // holds no lock of recoup's.
  void restore_process() const;

 private:
  friend class SettingsGuard;

  struct OfThread {
    std::uint64_t autocast_off = 0;   // excluded dispatch keys of autocast
    std::uint32_t float_control = 0;  // rounding, denormal numbers, traps
    std::int32_t threads = 0;
    c10::ScalarType autocast_dtype{};  // of the device
    c10::DeviceType device{};
    bool autocast_cache = false;
    bool grad_mode = false;
    bool forward_grad_mode = false;
    bool inference_mode = false;
    std::uint16_t unused = 0;  // explicit padding: snapshots are compared and hashed as bytes

    static OfThread now(c10::DeviceType device);
    friend bool operator==(const OfThread&, const OfThread&) = default;
  };

  // Capacities, more than PyTorch 2.13 needs; checked when the settings are read.
  static constexpr std::size_t kMostContext = 248;
  static constexpr std::size_t kMostPrecisions = 16;

  struct OfProcess {
    std::array<std::byte, kMostContext> context{};  // the plain members of at::Context
    std::array<at::Float32Precision, kMostPrecisions> precisions{};
    std::int64_t default_dtype = 0;

    static OfProcess now();
    [[nodiscard]] bool holds_now() const;
    static void change(const OfProcess& from, const OfProcess& to);
  };

  [[nodiscard]] bool holds_now(c10::DeviceType device) const {
    return thread_ == OfThread::now(device) && process_.holds_now();
  }
  static const Settings& intern(c10::DeviceType device);

  OfThread thread_;
  OfProcess process_;
};

// Applies settings; the destructor restores the former ones. Both write the stored members. Costs
// nothing if the settings are equal.
class SettingsGuard {
 public:
  // `wanted`: the settings of an op on a device of the type.
  SettingsGuard(const Settings& wanted, c10::DeviceType device);
  ~SettingsGuard();
  SettingsGuard(const SettingsGuard&) = delete;
  SettingsGuard& operator=(const SettingsGuard&) = delete;

 private:
  void change(const Settings& from, const Settings& to);

  static bool differ_in_process(const Settings& one, const Settings& other);

  const Settings& wanted_;
  WithInterpreter of_process_;  // Note [Settings of the process]
  const Settings& before_;
  int mkl_threads_ = 0;  // MKL's former count for this thread; 0: it had none
};

// While it lives, kernels of the calling thread run with one thread.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int threads_;
  const int mkl_threads_;  // MKL's former count for this thread; 0: it had none
};

}  // namespace recoup::detail
