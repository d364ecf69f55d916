// Reads a trace file whole. Everything that it says is checked: what is wrong is told with where.
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>

#include "csrc/base/strings.h"
#include "csrc/trace/format.h"
#include "csrc/trace/sink.h"
#include "recoup/trace.h"

namespace recoup::detail {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

class TraceReader {
 public:
  explicit TraceReader(const std::string& path)
      : path_(path), file_(std::fopen(path.c_str(), "rb")) {
    if (file_ == nullptr) {
      throw std::system_error(errno, std::generic_category(), path);
    }
  }

  Trace read() {
    read_head();
    while (read_frame()) {
      while (at_ < raw_.size()) {
        read_record();
      }
    }
    if (std::fgetc(file_.get()) != EOF) {
      fail("there is something after the end of the trace");
    }
    return builder_.take();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    const std::string inside =
        raw_.empty() ? std::string() : str_cat(", byte ", at_, " of the frame there");
    throw BadTrace(str_cat(path_, ": offset ", frame_start_, inside, ": ", what));
  }

  // Whether there was that much; nothing at all is false too.
  std::size_t read_bytes(unsigned char* data, std::size_t size) {
    const std::size_t got = std::fread(data, 1, size, file_.get());
    if (got < size && std::ferror(file_.get()) != 0) {
      throw std::system_error(errno, std::generic_category(), path_);
    }
    offset_ += got;
    return got;
  }

  static std::uint32_t u32(const unsigned char* bytes) {
    std::uint32_t number = 0;
    for (unsigned i = 0; i < 4; ++i) {
      number |= std::uint32_t{bytes[i]} << (8 * i);
    }
    return number;
  }

  void read_head() {
    std::array<unsigned char, kTraceMagic.size() + 4> head{};
    const std::size_t got = read_bytes(head.data(), head.size());
    if (got < kTraceMagic.size() ||
        !std::equal(kTraceMagic.begin(), kTraceMagic.end(), head.begin())) {
      fail("this is not a recoup trace");
    }
    if (got < head.size()) {
      fail(str_cat("the trace ends here, at offset ", offset_, ", before its version"));
    }
    const std::uint32_t version = u32(head.data() + kTraceMagic.size());
    if (version != kTraceVersion) {
      fail(str_cat("this trace has version ", version, "; this recoup reads version ",
                   kTraceVersion, ": record it again, or read it with the recoup that wrote it"));
    }
  }

  bool read_frame() {
    raw_.clear();
    at_ = 0;
    frame_start_ = offset_;
    std::array<unsigned char, kFrameHeader> header{};
    if (read_bytes(header.data(), header.size()) < header.size()) {
      fail(str_cat("the trace is cut off: the file ends at offset ", offset_,
                   " and the trace does not"));
    }
    const std::uint32_t raw_size = u32(header.data());
    const std::uint32_t packed_size = u32(header.data() + 4);
    const std::uint32_t checksum = u32(header.data() + 8);
    if (raw_size == 0 && packed_size == 0 && checksum == 0) {
      return false;
    }
    if (raw_size == 0 || raw_size > kMaxFrame || packed_size > compressBound(kMaxFrame)) {
      fail("this is no frame of a trace: the file is damaged");
    }
    std::vector<unsigned char> packed(packed_size);
    if (read_bytes(packed.data(), packed.size()) < packed.size()) {
      fail(str_cat("the trace is cut off: the file ends at offset ", offset_,
                   ", inside of this frame"));
    }
    std::vector<unsigned char> raw(raw_size);
    uLongf size = raw.size();
    if (uncompress(raw.data(), &size, packed.data(), packed.size()) != Z_OK || size != raw.size() ||
        crc32(0, packed.data(), static_cast<uInt>(packed.size())) != checksum) {
      fail("the frame is damaged");
    }
    raw_ = std::move(raw);
    return true;
  }

  std::uint64_t number() {
    std::uint64_t result = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ >= raw_.size()) {
        fail("a record goes over the end of its frame");
      }
      const unsigned char byte = raw_[at_++];
      result |= std::uint64_t{byte & 0x7FU} << shift;
      if ((byte & 0x80U) == 0) {
        return result;
      }
    }
    fail("a number has more than 64 bits");
  }
  std::uint32_t index() {
    const std::uint64_t result = number();
    if (result > 0xFFFFFFFEU) {
      fail(str_cat("index ", result, " is out of range"));
    }
    return static_cast<std::uint32_t>(result);
  }
  std::int64_t natural() {
    const std::uint64_t result = number();
    if (result > std::uint64_t{1} << 62) {
      fail(str_cat("a size of ", result, " is negative or out of range"));
    }
    return static_cast<std::int64_t>(result);
  }
  // Each element takes a byte at least, so no count is larger than what is left.
  std::size_t count() {
    const std::uint64_t result = number();
    if (result > raw_.size() - at_) {
      fail(str_cat("a list of ", result, " goes over the end of its frame"));
    }
    return static_cast<std::size_t>(result);
  }
  std::uint32_t storage(std::uint64_t distance) const {
    if (distance >= storages_) {
      fail("it refers to a storage that has not been made");
    }
    return static_cast<std::uint32_t>(storages_ - 1 - distance);
  }

  void read_record() {
    const std::uint64_t tag = number();
    constexpr auto kFirst = static_cast<std::uint64_t>(RecordTag::kEvent);
    constexpr auto kLast = kFirst + static_cast<std::uint64_t>(TraceEvent::Kind::kSettle);
    constexpr auto kNone = kFirst + static_cast<std::uint64_t>(TraceEvent::Kind::kOp);
    if (tag == static_cast<std::uint64_t>(RecordTag::kName)) {
      const std::size_t size = count();
      builder_.add_name({reinterpret_cast<const char*>(raw_.data()) + at_, size});
      at_ += size;
    } else if (tag == static_cast<std::uint64_t>(RecordTag::kKernel)) {
      read_kernel();
    } else if (tag == static_cast<std::uint64_t>(RecordTag::kOp)) {
      read_op();
    } else if (tag >= kFirst && tag <= kLast && tag != kNone) {
      read_event(static_cast<TraceEvent::Kind>(tag - kFirst));
    } else {
      fail(str_cat("there is no record with tag ", tag));
    }
  }

  void read_kernel() {
    std::vector<KernelStep> steps(count());
    for (KernelStep& step : steps) {
      const std::uint64_t packed = number();
      if ((packed & 1U) != 0) {
        step.kind = KernelStep::Kind::kFree;
        step.index = static_cast<std::uint32_t>(packed >> 1);
      } else {
        step.size = Bytes(static_cast<std::int64_t>(packed >> 1));
      }
    }
    builder_.add_kernel(steps);
  }

  void read_op() {
    TraceOp op;
    op.name = index();
    op.kernel = index();
    const std::uint64_t flags = number();
    op.repeatable = (flags & kOpRepeatable) != 0;
    op.random = (flags & kOpRandom) != 0;
    op.verifiable = (flags & kOpVerifiable) != 0;
    op.failed = (flags & kOpFailed) != 0;
    op.cost = Nanoseconds(natural());
    op.workspace = Bytes(natural());
    op.record_bytes = Bytes(natural());
    std::vector<TraceOperand> operands(count());
    for (TraceOperand& operand : operands) {
      const std::uint64_t packed = number();
      operand.storage = storage(packed >> kOperandBits);
      operand.reads = (packed & kOperandReads) != 0;
      operand.written = (packed & kOperandWritten) != 0;
      operand.overwritten = (packed & kOperandOverwritten) != 0;
      operand.left_out = (packed & kOperandLeftOut) != 0;
    }
    std::vector<TraceFresh> fresh(count());
    for (TraceFresh& each : fresh) {
      each.allocation = index();
      each.nbytes = Bytes(natural());
    }
    storages_ += fresh.size();
    builder_.add_op(op, operands, fresh);
  }

  void read_event(TraceEvent::Kind kind) {
    using Kind = TraceEvent::Kind;
    TraceEvent event{.kind = kind, .index = 0, .size = Bytes(0)};
    switch (kind) {
      case Kind::kExternal:
        event.size = Bytes(natural());
        ++storages_;
        break;
      case Kind::kAllocate:
        event.size = Bytes(natural());
        break;
      case Kind::kAdopt:
        event.index = index();
        event.size = Bytes(natural());
        ++storages_;
        break;
      case Kind::kFree:
      case Kind::kStep:
        event.index = index();
        break;
      case Kind::kSettle:
        break;
      default:
        event.index = storage(number());
        break;
    }
    builder_.add_event(event);
  }

  std::string path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  std::uint64_t offset_ = 0;       // in the file
  std::uint64_t frame_start_ = 0;  // of the frame that is being read
  std::vector<unsigned char> raw_;
  std::size_t at_ = 0;  // in raw_
  std::uint64_t storages_ = 0;
  TraceBuilder builder_;
};

}  // namespace
}  // namespace recoup::detail

namespace recoup {

Trace read_trace(const std::string& path) {
  Trace trace = detail::TraceReader(path).read();
  try {
    validate(trace);
  } catch (const BadTrace& error) {
    throw BadTrace(detail::str_cat(path, ": ", error.what()));
  }
  return trace;
}

}  // namespace recoup
