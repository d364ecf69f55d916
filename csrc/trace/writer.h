// Writes a trace to a file as it is made.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "csrc/trace/sink.h"

namespace recoup::detail {

// The file appears under its name only when `close` has been called: until then it is
// `path`.partial, which the destructor removes. The constructor and `close` throw std::system_error
// naming the file; what goes wrong in between is told by `close`, because the program that is
// recorded should not stop for it.
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
  void add_plan(const TracePlan& plan, std::span<const TraceEviction> evictions) override;
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
  std::uint64_t storages_ = 0;  // that have appeared so far
  int error_ = 0;               // errno of the first write that failed
};

}  // namespace recoup::detail
