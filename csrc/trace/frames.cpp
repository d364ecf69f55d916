#include "csrc/trace/frames.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>

#include "csrc/base/strings.h"
#include "csrc/trace/format.h"
#include "recoup/trace.h"

namespace recoup::detail {
namespace {

constexpr std::size_t kPacked = std::size_t{64} << 10;
constexpr std::size_t kWindow = std::size_t{256} << 10;

std::uint32_t u32(const unsigned char* bytes) {
  std::uint32_t number = 0;
  for (unsigned i = 0; i < 4; ++i) {
    number |= std::uint32_t{bytes[i]} << (8 * i);
  }
  return number;
}

}  // namespace

FrameReader::FrameReader(const std::string& path)
    : path_(path),
      file_(std::fopen(path.c_str(), "rb")),
      packed_(kPacked),
      window_(kWindow),
      at_(window_.data()),
      window_end_(at_) {
  if (file_ == nullptr) {
    throw std::system_error(errno, std::generic_category(), path);
  }
  read_head();
  if (inflateInit(&stream_) != Z_OK) {
    throw std::bad_alloc();
  }
}

FrameReader::~FrameReader() { inflateEnd(&stream_); }

void FrameReader::fail_at(const std::string& what) const {
  const std::string inside =
      in_frame_ ? str_cat(", byte ", taken(), " of the frame") : std::string();
  throw BadTrace(str_cat(path_, ": offset ", frame_start_, inside, ": ", what));
}

void FrameReader::fail(const std::string& what) {
  if (in_frame_) {
    while (packed_left_ > 0) {
      read_packed();
    }
    check_sum();
  }
  fail_at(what);
}

// The end of the file is reported as fewer bytes, possibly 0.
std::size_t FrameReader::read_bytes(unsigned char* data, std::size_t size) {
  const std::size_t got = std::fread(data, 1, size, file_.get());
  if (got < size && std::ferror(file_.get()) != 0) {
    throw std::system_error(errno, std::generic_category(), path_);
  }
  offset_ += got;
  return got;
}

void FrameReader::read_head() {
  std::array<unsigned char, kTraceMagic.size() + 4> head{};
  const std::size_t got = read_bytes(head.data(), head.size());
  if (got < kTraceMagic.size() ||
      !std::equal(kTraceMagic.begin(), kTraceMagic.end(), head.begin())) {
    fail_at("not a recoup trace");
  }
  if (got < head.size()) {
    fail_at(str_cat("the trace ends at offset ", offset_, ", before its version"));
  }
  const std::uint32_t version = u32(head.data() + kTraceMagic.size());
  if (version != kTraceVersion) {
    fail_at(str_cat("this trace has version ", version, "; this recoup reads version ",
                    kTraceVersion, ": record it again, or read it with the recoup that wrote it"));
  }
}

bool FrameReader::next() {
  if (in_frame_) {
    end_frame();
  }
  frame_start_ = offset_;
  std::array<unsigned char, kFrameHeader> header{};
  if (read_bytes(header.data(), header.size()) < header.size()) {
    fail_at(str_cat("the trace is truncated: the file ends at offset ", offset_,
                    ", before the end of the trace"));
  }
  if (std::all_of(header.begin(), header.end(), [](unsigned char byte) { return byte == 0; })) {
    if (std::fgetc(file_.get()) != EOF) {
      fail_at("the file continues after the end of the trace");
    }
    return false;
  }
  begin_frame(header.data());
  return true;
}

void FrameReader::begin_frame(const unsigned char* header) {
  const std::uint32_t raw_size = u32(header);
  const std::uint32_t packed_size = u32(header + 4);
  if (raw_size == 0 || raw_size > kMaxFrame || packed_size > compressBound(kMaxFrame)) {
    fail_at("no valid frame of a trace: the file is damaged");
  }
  in_frame_ = true;
  raw_size_ = raw_size;
  unpacked_ = 0;
  packed_left_ = packed_size;
  checksum_ = u32(header + 8);
  sum_ = static_cast<std::uint32_t>(crc32(0, nullptr, 0));
  at_ = window_end_ = window_.data();
  stream_.avail_in = 0;
  inflateReset(&stream_);
}

// Its last byte has been unpacked: the packed stream must end there as well.
void FrameReader::end_frame() {
  unsigned char beyond = 0;
  int result = Z_OK;
  do {
    if (stream_.avail_in == 0 && packed_left_ > 0) {
      read_packed();
    }
    stream_.next_out = &beyond;
    stream_.avail_out = 1;
    result = inflate(&stream_, Z_NO_FLUSH);
  } while (result == Z_OK && stream_.avail_out == 1);
  const bool ended = result == Z_STREAM_END && stream_.avail_out == 1 && stream_.avail_in == 0;
  if (!ended || packed_left_ > 0) {
    fail("the frame is damaged");
  }
  check_sum();
  in_frame_ = false;
}

void FrameReader::read_packed() {
  const std::size_t size = std::min<std::uint64_t>(packed_left_, packed_.size());
  if (read_bytes(packed_.data(), size) < size) {
    fail_at(str_cat("the trace is truncated: the file ends at offset ", offset_,
                    ", inside this frame"));
  }
  sum_ = static_cast<std::uint32_t>(crc32(sum_, packed_.data(), static_cast<uInt>(size)));
  packed_left_ -= size;
  stream_.next_in = packed_.data();
  stream_.avail_in = static_cast<uInt>(size);
}

void FrameReader::check_sum() {
  if (sum_ != checksum_) {
    fail_at("the frame is damaged");
  }
}

// Called only if the frame should have more bytes according to its header.
void FrameReader::refill() {
  const std::uint64_t wanted = std::min<std::uint64_t>(raw_size_ - unpacked_, window_.size());
  if (wanted == 0) {
    fail("a record extends beyond its frame");
  }
  stream_.next_out = window_.data();
  stream_.avail_out = static_cast<uInt>(wanted);
  while (stream_.avail_out > 0) {
    if (stream_.avail_in == 0 && packed_left_ > 0) {
      read_packed();
    }
    if (inflate(&stream_, Z_NO_FLUSH) != Z_OK && stream_.avail_out > 0) {
      fail("the frame is damaged");
    }
  }
  at_ = window_.data();
  window_end_ = at_ + wanted;
  unpacked_ += wanted;
}

}  // namespace recoup::detail
