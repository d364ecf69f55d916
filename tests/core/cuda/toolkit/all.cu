// Compiles all code that uses the CUDA toolkit with nvcc, whose warnings are errors too.
#include "csrc/cuda/host_copies.cpp"
#include "csrc/cuda/host_tier.cpp"
#include "csrc/cuda/link_speed.cpp"
#include "csrc/cuda/move.cpp"
#include "csrc/cuda/op_clock.cpp"
#include "csrc/cuda/reservation.cpp"
#include "csrc/cuda/stream_order.cpp"
#include "csrc/cuda/toolkit/cudart.cpp"
