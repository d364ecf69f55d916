#include "csrc/schedule/op_kinds.h"

#include <algorithm>
#include <array>

namespace recoup::detail {
namespace {

constexpr std::array<std::string_view, 10> kHeavyParts = {
    "conv", "matmul", "linear", "attention", "lstm", "gru", "rnn", "einsum", "cdist", "fft"};
constexpr std::array<std::string_view, 9> kHeavyNames = {
    "mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "sspaddmm"};

// "aten::addmm.out" -> "addmm"
std::string_view base_of(std::string_view name) {
  if (const std::size_t space = name.rfind("::"); space != std::string_view::npos) {
    name.remove_prefix(space + 2);
  }
  name = name.substr(0, name.find('.'));
  while (name.ends_with('_')) {
    name.remove_suffix(1);
  }
  return name;
}

}  // namespace

bool is_compute_heavy(std::string_view name) {
  const std::string_view base = base_of(name);
  return std::find(kHeavyNames.begin(), kHeavyNames.end(), base) != kHeavyNames.end() ||
         std::any_of(kHeavyParts.begin(), kHeavyParts.end(), [base](std::string_view part) {
           return base.find(part) != std::string_view::npos;
         });
}

}  // namespace recoup::detail
