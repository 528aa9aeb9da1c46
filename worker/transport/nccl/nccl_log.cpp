#include "worker/transport/nccl/nccl_log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

namespace stagecoach::worker {
namespace {

std::string& FileName() {
  static std::string name;
  return name;
}

}  // namespace

void NcclLog::Redirect() {
  if (!FileName().empty()) return;
  if (std::getenv("NCCL_DEBUG") != nullptr) {
    const char* const file = std::getenv("NCCL_DEBUG_FILE");
    if (file != nullptr && std::string_view(file).find('%') == std::string_view::npos) {
      FileName() = file;
    }
    return;
  }
  const char* const folder = std::getenv("TMPDIR");
  FileName() =
      fmt::format("{}/stagecoach-nccl-{}.log", folder != nullptr ? folder : "/tmp", getpid());
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_SUBSYS", "INIT,P2P,NET", 0);
  setenv("NCCL_DEBUG_FILE", FileName().c_str(), 1);
  std::atexit([] { unlink(FileName().c_str()); });
}

std::set<std::string> NcclLog::Paths() {
  std::ifstream file(FileName());
  std::ostringstream text;
  text << file.rdbuf();
  return PathsIn(text.str());
}

std::set<std::string> NcclLog::PathsIn(const std::string& text) {
  constexpr std::string_view kVia = " via ";
  std::set<std::string> paths;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    // "... Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "... [send] via NET/Socket/0"
    const size_t channel = line.find(" Channel "), via = line.find(kVia);
    if (channel == std::string::npos || via == std::string::npos || via < channel) continue;
    std::istringstream rest(line.substr(via + kVia.size()));
    if (std::string path; rest >> path) paths.insert(path);
  }
  return paths;
}

}  // namespace stagecoach::worker
