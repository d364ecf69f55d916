// The CSV reader: accepted files, and errors that name the line.
#include <gtest/gtest.h>

#include <sstream>

#include "recoup/offline/layout.h"

namespace recoup {
namespace {

LayoutProblem read(const std::string& text) {
  std::istringstream input(text);
  return read_layout_csv(input, "f.csv");
}

TEST(LayoutCsv, ReadsBuffers) {
  const LayoutProblem problem = read("id,lower,upper,size\nb1,0,3,4\nx y,-7,9,0\n");
  ASSERT_EQ(problem.buffers.size(), 2U);
  EXPECT_EQ(problem.buffers[0].name, "b1");
  EXPECT_EQ(problem.buffers[0].upper, 3);
  EXPECT_EQ(problem.buffers[0].size, 4_B);
  EXPECT_EQ(problem.buffers[1].name, "x y");
  EXPECT_EQ(problem.buffers[1].lower, -7);
  EXPECT_EQ(read("\xEF\xBB\xBFid,lower,upper,size\r\na,0,1,2\r\n").buffers[0].size, 2_B);
  EXPECT_TRUE(read("id,lower,upper,size\n").buffers.empty());
}

TEST(LayoutCsv, NamesTheLineOfAFault) {
  const std::string header = "id,lower,upper,size\n";
  const std::string start = header + "a,0,1,2\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "f.csv: the file is empty; its first line must be id,lower,upper,size"},
      {"id,size\n", "f.csv, line 1: the header must be id,lower,upper,size, got 'id,size'"},
      {"a,0,1,2\n", "f.csv, line 1: the header must be id,lower,upper,size, got 'a,0,1,2'"},
      {start + "b,0,1,-2\n", "f.csv, line 3: size must be 0 bytes or more, got -2"},
      {start + "b,5,5,2\n", "f.csv, line 3: lower must be below upper, got 5 and 5"},
      {start + "a,0,1,2\n", "f.csv, line 3: the id 'a' was already used in line 2"},
      {start + "b,zero,1,2\n", "f.csv, line 3: lower must be a whole number, got 'zero'"},
      {start + "b,0,1,2.5\n", "f.csv, line 3: size must be a whole number, got '2.5'"},
      {start + "b,0,,2\n", "f.csv, line 3: upper must be a whole number, got ''"},
      {start + "b,0,1,99999999999999999999\n",
       "f.csv, line 3: size does not fit in 64 bits: '99999999999999999999'"},
      {start + "b,0,1,2,3\n",
       "f.csv, line 3: this line has 5 fields, not the 4 of id,lower,upper,size: 'b,0,1,2,3'"},
      {start + "\n", "f.csv, line 3: this line has 1 field, not the 4 of id,lower,upper,size: ''"},
      {start + ",0,1,2\n", "f.csv, line 3: the id is empty"},
      {start + "b,0,",
       "f.csv, line 3: this line has 3 fields, not the 4 of id,lower,upper,size; the file seems "
       "to be truncated: 'b,0,'"},
      {start + "b,0,1,2",
       "f.csv, line 3: this line does not end with a line feed; the file seems to be truncated: "
       "'b,0,1,2'"},
  };
  for (const auto& [text, message] : cases) {
    try {
      read(text);
      ADD_FAILURE() << "not refused: " << message;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(), message);
    }
  }
}

}  // namespace
}  // namespace recoup
