#include "router/text/json_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "common/text/utf8.h"

namespace stagecoach::router {
namespace {

// "~0" stands for "~", and "~1" for "/".
absl::StatusOr<std::string> Unescape(std::string_view segment) {
  std::string text;
  for (size_t i = 0; i < segment.size(); ++i) {
    if (segment[i] != '~') {
      text += segment[i];
    } else if (++i < segment.size() && (segment[i] == '0' || segment[i] == '1')) {
      text += segment[i] == '0' ? '~' : '/';
    } else {
      return absl::InvalidArgumentError("in a name, write '~' as '~0' and '/' as '~1'");
    }
  }
  return text;
}

bool IsIndex(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

absl::StatusOr<JsonPaths> JsonPaths::Parse(std::span<const std::string> paths) {
  if (paths.size() > kMaxJsonPaths) {
    return absl::InvalidArgumentError(
        fmt::format("paths: {} paths; at most {} are allowed", paths.size(), kMaxJsonPaths));
  }
  JsonPaths parsed;
  if (paths.empty()) parsed.paths_.emplace_back();
  for (size_t i = 0; i < paths.size(); ++i) {
    const auto bad = [i](std::string_view what) {
      return absl::InvalidArgumentError(fmt::format("paths[{}]: {}", i, what));
    };
    std::string_view rest = paths[i];
    if (rest.size() > kMaxJsonPathBytes) {
      return bad(fmt::format("{} bytes; at most {} are allowed", rest.size(), kMaxJsonPathBytes));
    }
    if (!text::IsUtf8(rest)) return bad("is not valid UTF-8");
    if (!rest.empty() && rest[0] != '/') return bad("must begin with '/', as in \"/answer\"");
    Path path;
    while (!rest.empty()) {
      rest.remove_prefix(1);
      const std::string_view segment = rest.substr(0, rest.find('/'));
      rest.remove_prefix(segment.size());
      auto text = Unescape(segment);
      if (!text.ok()) return bad(std::string(text.status().message()));
      path.push_back({.text = *std::move(text), .any = segment == "*"});
    }
    parsed.paths_.push_back(std::move(path));
  }
  return parsed;
}

JsonPaths::Place JsonPaths::Root() const {
  Place root;
  for (uint32_t i = 0; i < paths_.size(); ++i) {
    root.selected = root.selected || paths_[i].empty();
    root.open.push_back(i);
  }
  if (root.selected) root.open.clear();
  return root;
}

JsonPaths::Place JsonPaths::Child(const Place& parent, size_t depth,
                                  std::string_view segment) const {
  Place child;
  child.selected = parent.selected;
  if (child.selected) return child;
  for (const uint32_t i : parent.open) {
    const Segment& wanted = paths_[i][depth];
    if (!wanted.any && wanted.text != segment) continue;
    child.selected = child.selected || paths_[i].size() == depth + 1;
    child.open.push_back(i);
  }
  if (child.selected) child.open.clear();
  return child;
}

bool JsonPaths::MayBeginWithArray() const {
  return std::any_of(paths_.begin(), paths_.end(), [](const Path& path) {
    return path.empty() || path[0].any || IsIndex(path[0].text);
  });
}

void AppendPointerSegment(std::string_view segment, std::string* pointer) {
  for (const char c : segment) {
    if (c == '~') {
      *pointer += "~0";
    } else if (c == '/') {
      *pointer += "~1";
    } else {
      *pointer += c;
    }
  }
}

}  // namespace stagecoach::router
