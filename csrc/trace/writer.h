// TraceWriter: writes a trace to a file while it is recorded.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "csrc/trace/sink.h"

namespace recoup::detail {

// The file appears under its name only when `close` has been called. Until then its name is
// `path`.partial, and the destructor removes it. The constructor and `close` throw
// std::system_error with the name of the file. Errors in between are reported by `close`, because
// they must not stop the program that is recorded.
class TraceWriter final : public TraceSink {
 public:
  explicit TraceWriter(const std::string& path);
  ~TraceWriter() override;
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  void set_device(const TraceDevice& device) override;
  void add_name(std::string_view name) override;
  void add_kernel(std::span<const KernelStep> steps) override;
  void add_op(const TraceOp& op, std::span<const TraceOperand> operands,
              std::span<const TraceFresh> fresh) override;
  void add_plan(const TracePlan& plan, const TracePlanLists& lists) override;
  void add_list_op(const TraceListOp& op, std::span<const TracePart> parts,
                   std::span<const TracePartOperand> operands) override;
  void add_event(const TraceEvent& event) override;
  void close();

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  void put(std::uint64_t number);
  void end_record();
  void flush();
  void write(const void* data, std::size_t size);
  [[nodiscard]] std::uint64_t distance(std::uint32_t storage) const {
    return storages_ - 1 - std::uint64_t{storage};
  }

  std::string path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  std::vector<unsigned char> raw_;
  std::vector<unsigned char> packed_;
  std::uint64_t storages_ = 0;  // number of storages so far
  int error_ = 0;               // errno of the first failed write
};

}  // namespace recoup::detail
