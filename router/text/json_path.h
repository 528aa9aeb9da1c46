// Selects values of a JSON document: JSON pointers (RFC 6901) with wildcards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace stagecoach::router {

inline constexpr size_t kMaxJsonPaths = 64;
inline constexpr size_t kMaxJsonPathBytes = 1024;

// A path selects the value it names and everything below it. A segment "*" stands for every member
// and item. Immutable.
class JsonPaths {
 public:
  // No path, or the path "": everything. INVALID_ARGUMENT names the invalid path, as in "paths[1]:
  // ...".
  static absl::StatusOr<JsonPaths> Parse(std::span<const std::string> paths);

  // The match state of all paths at one value.
  struct Place {
    bool selected = false;
    std::vector<uint32_t> open;  // paths that may match below it, if it is not selected
  };
  Place Root() const;
  // The place of the member or item `segment` of the value at `parent`, which is `depth` segments
  // deep.
  Place Child(const Place& parent, size_t depth, std::string_view segment) const;

  // Whether a document that is an array could contain a selected value.
  bool MayBeginWithArray() const;

 private:
  struct Segment {
    std::string text;
    bool any = false;  // "*"
  };
  using Path = std::vector<Segment>;

  std::vector<Path> paths_;
};

// Appends a segment; escapes "~" and "/".
void AppendPointerSegment(std::string_view segment, std::string* pointer);

}  // namespace stagecoach::router
