#include "router/frontend/http/dropped.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <string>

#include "common/mutex.h"

namespace stagecoach::router::http {
namespace {

// Clients choose the names, so neither their number nor their length may grow.
constexpr size_t kMaxNoted = 64;
constexpr size_t kMaxNameBytes = 80;

std::string Printable(std::string_view text) {
  std::string name(text.substr(0, kMaxNameBytes));
  std::replace_if(name.begin(), name.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return name;
}

struct Noted {
  Mutex mutex;
  std::set<std::string> names ABSL_GUARDED_BY(mutex);
};

}  // namespace

void NoteDropped(std::string_view what) {
  static Noted noted;
  const std::string name = Printable(what);
  {
    const MutexLock lock(noted.mutex);
    if (noted.names.size() >= kMaxNoted || !noted.names.insert(name).second) return;
  }
  spdlog::info("a request asks for {}, which this server leaves out; this is logged once", name);
}

std::string TextInsteadOf(std::string_view type) {
  NoteDropped(fmt::format("a part of a tool's result of the type '{}'", type));
  return fmt::format("[{}: this model reads only text]", type);
}

}  // namespace stagecoach::router::http
