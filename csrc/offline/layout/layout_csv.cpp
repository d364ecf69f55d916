// read_layout_csv: reads the instance format of google/minimalloc and idealloc. Four columns of
// plain fields need no CSV library.
#include <array>
#include <charconv>
#include <istream>
#include <stdexcept>
#include <unordered_map>

#include "csrc/base/strings.h"
#include "recoup/offline/layout.h"

namespace recoup {
namespace {

using detail::str_cat;

constexpr std::string_view kHeader = "id,lower,upper,size";
constexpr std::size_t kColumns = 4;
constexpr std::size_t kMostQuoted = 60;  // the most characters of a line that an error quotes
// The longest line in bytes. A longer one is an error, so no more of it is read.
constexpr std::size_t kMostLine = 64U << 10;

class LineReader {
 public:
  LineReader(std::istream& input, std::string_view name) : input_(input), name_(name) {}

  // Returns false at the end of the file. A line may end in CR LF; a file may start with a byte
  // order mark.
  bool next() {
    if (!read_line()) {
      return false;
    }
    ++number_;
    if (line_.size() > kMostLine) {
      refuse("this line is longer than ", kMostLine, " bytes");
    }
    if (!line_.empty() && line_.back() == '\r') {
      line_.pop_back();
    }
    if (number_ == 1 && line_.starts_with("\xEF\xBB\xBF")) {
      line_.erase(0, 3);
    }
    return true;
  }
  [[nodiscard]] const std::string& line() const { return line_; }
  [[nodiscard]] std::size_t number() const { return number_; }
  // Whether the last line ended without a line feed.
  [[nodiscard]] bool is_cut_off() const { return is_cut_off_; }

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw std::invalid_argument(str_cat(name_, ", line ", number_, ": ", parts...));
  }

 private:
  // Like std::getline, but reads at most one byte beyond the limit.
  bool read_line() {
    line_.clear();
    is_cut_off_ = false;
    char next = '\0';
    while (line_.size() <= kMostLine) {
      if (!input_.get(next)) {
        is_cut_off_ = true;
        break;
      }
      if (next == '\n') {
        return true;
      }
      line_.push_back(next);
    }
    return !line_.empty();
  }

  std::istream& input_;
  std::string_view name_;
  std::string line_;
  std::size_t number_ = 0;
  bool is_cut_off_ = false;
};

std::string quoted(std::string_view text) {
  const bool fits = text.size() <= kMostQuoted;
  return str_cat("'", text.substr(0, kMostQuoted), fits ? "'" : "...'");
}

std::array<std::string_view, kColumns> split(const LineReader& reader) {
  std::string_view rest = reader.line();
  std::array<std::string_view, kColumns> fields;
  std::size_t count = 0;
  for (bool more = true; more; ++count) {
    const std::size_t comma = rest.find(',');
    if (count < kColumns) {
      fields[count] = rest.substr(0, comma);
    }
    more = comma != std::string_view::npos;
    rest.remove_prefix(more ? comma + 1 : rest.size());
  }
  if (count != kColumns) {
    reader.refuse(
        "this line has ", count, count == 1 ? " field" : " fields", ", not the 4 of ", kHeader,
        count < kColumns && reader.is_cut_off() ? "; the file seems to be truncated: " : ": ",
        quoted(reader.line()));
  }
  return fields;
}

std::int64_t number(const LineReader& reader, std::string_view column, std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) {
    reader.refuse(column, " does not fit in 64 bits: ", quoted(text));
  }
  if (error != std::errc() || end != text.data() + text.size()) {
    reader.refuse(column, " must be a whole number, got ", quoted(text));
  }
  return value;
}

}  // namespace

LayoutProblem read_layout_csv(std::istream& input, std::string_view name) {
  LineReader reader(input, name);
  if (!reader.next()) {
    throw std::invalid_argument(
        str_cat(name, ": the file is empty; its first line must be ", kHeader));
  }
  if (reader.line() != kHeader) {
    reader.refuse("the header must be ", kHeader, ", got ", quoted(reader.line()));
  }
  LayoutProblem problem;
  std::unordered_map<std::string, std::size_t> line_of;
  while (reader.next()) {
    const auto [id, lower, upper, size] = split(reader);
    if (reader.is_cut_off()) {  // 1024 could be the start of 10240
      reader.refuse("this line does not end with a line feed; the file seems to be truncated: ",
                    quoted(reader.line()));
    }
    const LayoutBuffer buffer{.name = std::string(id),
                              .lower = number(reader, "lower", lower),
                              .upper = number(reader, "upper", upper),
                              .size = Bytes(number(reader, "size", size))};
    if (id.empty()) {
      reader.refuse("the id is empty");
    }
    if (buffer.lower >= buffer.upper) {
      reader.refuse("lower must be below upper, got ", lower, " and ", upper);
    }
    if (buffer.size.count() < 0) {
      reader.refuse("size must be 0 bytes or more, got ", size);
    }
    const auto [before, is_new] = line_of.emplace(buffer.name, reader.number());
    if (!is_new) {
      reader.refuse("the id ", quoted(id), " was already used in line ", before->second);
    }
    problem.buffers.push_back(buffer);
  }
  if (input.bad()) {
    throw std::invalid_argument(str_cat(name, ": could not be read to the end"));
  }
  return problem;
}

}  // namespace recoup
