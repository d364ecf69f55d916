#include "csrc/share/process_start.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>

#include "csrc/base/strings.h"

namespace recoup::detail {
namespace {
// Whether all threads of a process have ended. A process whose first thread has ended is a zombie,
// too, as long as others run.
bool has_ended(const std::string& folder, char state) {
  if (state != 'Z' && state != 'X') {
    return false;
  }
  std::error_code error;
  const std::filesystem::directory_iterator threads(folder + "/task", error);
  return error || std::distance(begin(threads), end(threads)) <= 1;
}
}  // namespace

std::optional<std::uint64_t> start_of(std::int64_t process) {
  const std::string folder = str_cat("/proc/", process);
  // The first thread's, which started with the process: qemu makes up /proc/PID/stat of a process
  // that it emulates.
  const std::string path = str_cat(folder, "/task/", process, "/stat");
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    const bool ended = kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH;
    return ended ? std::nullopt : std::optional<std::uint64_t>(0);
  }
  std::array<char, 2048> text{};
  const ssize_t length = read(file, text.data(), text.size() - 1);
  ::close(file);
  // The name of the program is in parentheses, and may have any character.
  const char* const end = length > 0 ? std::strrchr(text.data(), ')') : nullptr;
  if (end == nullptr) {
    return 0;
  }
  std::istringstream fields(end + 1);
  char state = 0;
  fields >> state;
  constexpr int kBetween = 18;  // fields between the state and the start
  std::string skipped;
  for (int i = 0; i < kBetween; ++i) {
    fields >> skipped;
  }
  std::uint64_t start = 0;
  fields >> start;
  return has_ended(folder, state) ? std::nullopt : std::optional(start);
}

}  // namespace recoup::detail
