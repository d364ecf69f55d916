// Files without a name, in a directory on a disk.
#pragma once

#include <string>

namespace recoup::detail {

// The system's first directory for temporary files that is on a disk. Throws std::invalid_argument.
[[nodiscard]] std::string default_directory();
// Throws std::invalid_argument if the directory is in memory, std::system_error if it cannot be
// read.
void refuse_memory(const std::string& directory);

struct UnnamedFile {
  int descriptor;  // the caller closes it
  bool direct;     // copies go past the page cache
};

// Creates a file without a name if the system can; otherwise removes its name at once. `direct`:
// with direct I/O, if the file system has it. Throws std::system_error.
[[nodiscard]] UnnamedFile make_unnamed_file(const std::string& directory, bool direct);

}  // namespace recoup::detail
