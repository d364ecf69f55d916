// FrameReader: unpacks the frames of a trace file as a stream. A frame is never held as a whole.
#pragma once

#include <zlib.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace recoup::detail {

// Throws BadTrace, with the offset, for a file that is not a trace, and std::system_error, with the
// name of the file, for a file that cannot be read.
class FrameReader {
 public:
  // Reads the head of the file.
  explicit FrameReader(const std::string& path);
  ~FrameReader();
  FrameReader(const FrameReader&) = delete;
  FrameReader& operator=(const FrameReader&) = delete;

  // Advances to the next frame. The previous frame must have been read to its end, which is checked
  // here. False: the file has ended correctly.
  bool next();
  // Raw bytes of the frame that have not been read yet, according to its header.
  [[nodiscard]] std::uint64_t left() const { return raw_size_ - taken(); }
  std::uint8_t byte() {
    if (at_ == window_end_) {
      refill();
    }
    return *at_++;
  }
  // Number of bytes of the file that have been read so far.
  [[nodiscard]] std::uint64_t offset() const { return offset_; }

  // Throws BadTrace with the current position. If the frame is damaged, the error says so instead
  // of `what`.
  [[noreturn]] void fail(const std::string& what);

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  [[nodiscard]] std::uint64_t taken() const {
    return unpacked_ - static_cast<std::uint64_t>(window_end_ - at_);
  }
  std::size_t read_bytes(unsigned char* data, std::size_t size);
  void read_head();
  void begin_frame(const unsigned char* header);
  void end_frame();
  void refill();
  void read_packed();
  void check_sum();
  [[noreturn]] void fail_at(const std::string& what) const;

  std::string path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  std::uint64_t offset_ = 0;       // in the file
  std::uint64_t frame_start_ = 0;  // offset of the current frame
  bool in_frame_ = false;
  std::uint64_t raw_size_ = 0;     // size of the frame
  std::uint64_t unpacked_ = 0;     // unpacked part of raw_size_
  std::uint64_t packed_left_ = 0;  // packed bytes that have not been read yet
  std::uint32_t checksum_ = 0;
  std::uint32_t sum_ = 0;  // checksum so far
  z_stream stream_{};
  std::vector<unsigned char> packed_;
  std::vector<unsigned char> window_;
  const unsigned char* at_ = nullptr;
  const unsigned char* window_end_ = nullptr;
};

}  // namespace recoup::detail
