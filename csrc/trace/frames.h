// The frames of a trace file, unpacked as a stream: a frame is never held whole.
#pragma once

#include <zlib.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace recoup::detail {

// Throws BadTrace, with the offset, for what is no trace, std::system_error naming the file for
// what cannot be read.
class FrameReader {
 public:
  // Reads the head of the file.
  explicit FrameReader(const std::string& path);
  ~FrameReader();
  FrameReader(const FrameReader&) = delete;
  FrameReader& operator=(const FrameReader&) = delete;

  // Goes to the next frame; the one before must have been read to its end, which is checked here.
  // False: the file has ended as a trace does.
  bool next();
  // Raw bytes of the frame that were not taken yet, if it is what it says.
  [[nodiscard]] std::uint64_t left() const { return raw_size_ - taken(); }
  std::uint8_t byte() {
    if (at_ == window_end_) {
      refill();
    }
    return *at_++;
  }
  // Of the file, what has been read so far.
  [[nodiscard]] std::uint64_t offset() const { return offset_; }

  // Says where it is. When the frame is a damaged one, that is said and not what came of it.
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
  std::uint64_t frame_start_ = 0;  // of the frame that is being read
  bool in_frame_ = false;
  std::uint64_t raw_size_ = 0;     // of the frame
  std::uint64_t unpacked_ = 0;     // of them
  std::uint64_t packed_left_ = 0;  // to be read
  std::uint32_t checksum_ = 0;
  std::uint32_t sum_ = 0;  // so far
  z_stream stream_{};
  std::vector<unsigned char> packed_;
  std::vector<unsigned char> window_;
  const unsigned char* at_ = nullptr;
  const unsigned char* window_end_ = nullptr;
};

}  // namespace recoup::detail
