#include "csrc/disk/unnamed_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <system_error>

#include "csrc/base/strings.h"

namespace recoup::detail {
namespace {

bool is_memory(const struct statfs& found) {
  return found.f_type == TMPFS_MAGIC || found.f_type == RAMFS_MAGIC;
}

[[noreturn]] void cannot_create(const std::string& directory) {
  throw std::system_error(
      errno, std::generic_category(),
      str_cat("recoup: cannot create the file of the spill tier in ", directory));
}

}  // namespace

std::string default_directory() {
  const char* const given = std::getenv("TMPDIR");
  for (const std::string directory : {given == nullptr ? "" : given, "/tmp", "/var/tmp"}) {
    struct statfs found{};
    if (!directory.empty() && statfs(directory.c_str(), &found) == 0 && !is_memory(found)) {
      return directory;
    }
  }
  throw std::invalid_argument(
      "recoup: the system's directories for temporary files are in memory (tmpfs), not on a disk. "
      "Give a spill_dir on a disk");
}

void refuse_memory(const std::string& directory) {
  struct statfs found{};
  if (statfs(directory.c_str(), &found) != 0) {
    cannot_create(directory);
  }
  if (is_memory(found)) {
    throw std::invalid_argument(str_cat("recoup: ", directory,
                                        " is in memory (tmpfs), not on a disk, so spilling there "
                                        "would save no memory. Give a spill_dir on a disk"));
  }
}

UnnamedFile make_unnamed_file(const std::string& directory, bool direct) {
  const int flags = O_RDWR | O_CLOEXEC | (direct ? O_DIRECT : 0);
  int file = open(directory.c_str(), flags | O_TMPFILE, 0600);
  if (file >= 0) {
    return {.descriptor = file, .direct = direct};
  }
  if (direct && errno == EINVAL) {
    return make_unnamed_file(directory, false);
  }
  std::string name = str_cat(directory, "/recoup-XXXXXX");
  file = mkostemp(name.data(), O_CLOEXEC | (direct ? O_DIRECT : 0));
  if (file < 0) {
    cannot_create(directory);
  }
  unlink(name.c_str());
  return {.descriptor = file, .direct = direct};
}

}  // namespace recoup::detail
