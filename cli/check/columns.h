// Two columns for people: short names, and texts wrapped beside them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace stagecoach::check {

class Columns {
 public:
  explicit Columns(size_t width) : width_(width) {}

  // A line break in `text` begins a new line of it.
  void Add(std::string_view name, std::string_view text);

  // Lines of at most the width (a longer word stays whole), indented by two, each with its break.
  std::string Text() const;

 private:
  struct Row {
    std::string name, text;
  };
  size_t width_;
  std::vector<Row> rows_;
};

}  // namespace stagecoach::check
