#include "cli/loading_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include "common/log_writer.h"

namespace stagecoach::cli {
namespace {

// The router's lines about the load begin so (router/dispatch/load_progress.h).
constexpr std::string_view kLoading = "loading [";
constexpr char kErase[] = "\r\x1b[K";

}  // namespace

LoadingLine::LoadingLine(const std::string& model) : on_terminal_(isatty(STDERR_FILENO) == 1) {
  if (on_terminal_) WriteStderr(fmt::format("starting {} ...", model));
}

LoadingLine::~LoadingLine() {
  if (!on_terminal_) return;
  WriteStderr(kErase);
  FlushStderr();
}

void LoadingLine::Follow(std::string_view log_line) const {
  const size_t begin = log_line.find(kLoading);
  if (on_terminal_ && begin != std::string_view::npos) {
    WriteStderr(fmt::format("{}{}", kErase, log_line.substr(begin)));
  }
}

}  // namespace stagecoach::cli
