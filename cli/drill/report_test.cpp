#include "cli/drill/report.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace stagecoach::drill {
namespace {

Row GoodRow() {
  return {.fault = Fault::kKill,
          .stage = 1,
          .n_streams = 4,
          .n_identical = 4,
          .noticed_s = {0.125},
          .recovered_s = {0.5},
          .silent_s = {0.25, 0.75, 0.5}};
}

size_t LongestLine(const std::string& text) {
  std::istringstream lines(text);
  size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

TEST_CASE("the columns of the table are aligned and fit into 100 columns") {
  Row wide = GoodRow();
  wide.n_streams = wide.n_identical = wide.n_error = wide.n_hung = wide.n_different = 99'999;
  wide.silent_s = {9'999.99};
  const size_t width = LongestLine(TableHead());
  CHECK(width <= 100);
  CHECK(LongestLine(TableLine(GoodRow())) == width);
  CHECK(LongestLine(TableLine(wide)) == width);
  CHECK(TableLine(GoodRow()).starts_with("kill      1        4         4     0     0         0"));
  CHECK(TableLine(GoodRow()).ends_with("0.50   0.75\n"));
}

TEST_CASE("the last line tells whether all streams ended well, and else the first error") {
  std::vector<Row> rows(2, GoodRow());
  CHECK(AllIdentical(rows));
  CHECK(TableEnd(rows) == "all 8 streams ended as without a fault\n");
  rows[1].n_identical = 1;
  rows[1].n_error = 3;
  rows[1].first_error = "stage 1 is lost";
  CHECK_FALSE(AllIdentical(rows));
  CHECK(TableEnd(rows) ==
        "3 of 8 streams did not end as without a fault; the first error: stage 1 is lost\n");
}

TEST_CASE("streams that had ended before a fault are reported") {
  Row row = GoodRow();
  row.running_share = 0.5;
  CHECK(TableEnd(std::vector<Row>{GoodRow(), row}) ==
        "all 8 streams ended as without a fault\n"
        "at a fault only 50 % of the streams still ran: give more --tokens\n");
}

TEST_CASE("a fault that was not noticed has dashes") {
  Row row = GoodRow();
  row.noticed_s.clear();
  CHECK(TableLine(row).size() == TableLine(GoodRow()).size());
  CHECK(TableLine(row).find('-') != std::string::npos);
}

TEST_CASE("the JSON has every count") {
  const boost::json::object json = ToJson(std::vector<Row>{GoodRow()});
  CHECK(json.at("all_identical").as_bool());
  const boost::json::object& row = json.at("faults").as_array().at(0).as_object();
  CHECK(row.at("fault").as_string() == "kill");
  for (const char* key :
       {"stage", "streams", "running_share", "identical", "error", "hung", "different"}) {
    CHECK(row.at(key).is_number());
  }
  CHECK(row.at("silent_s").at("median") == 0.5);
}

}  // namespace
}  // namespace stagecoach::drill
