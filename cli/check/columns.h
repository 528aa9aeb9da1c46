// Formats text in two columns: short names, and texts wrapped beside them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace stagecoach::check {

class Columns {
 public:
  explicit Columns(size_t width) : width_(width) {}

  // A line break in `text` is kept.
  void Add(std::string_view name, std::string_view text);

  // Lines no wider than the width (a longer word is not broken), indented by two spaces, each with
  // a trailing line break.
  std::string Text() const;

 private:
  struct Row {
    std::string name, text;
  };
  size_t width_;
  std::vector<Row> rows_;
};

}  // namespace stagecoach::check
