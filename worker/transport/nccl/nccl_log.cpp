#include "worker/transport/nccl/nccl_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
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

LinkPaths NcclLog::Paths() {
  std::ifstream file(FileName());
  std::ostringstream text;
  text << file.rdbuf();
  return PathsIn(text.str());
}

LinkPaths NcclLog::PathsIn(const std::string& text) {
  constexpr std::string_view kChannel = " Channel ", kVia = " via ";
  LinkPaths paths;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    // "... Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "... 0[1] -> 1[0] [send] via NET/Socket/0"
    const size_t channel = line.find(kChannel), via = line.find(kVia);
    if (channel == std::string::npos || via == std::string::npos || via < channel) continue;
    const std::string_view way = std::string_view(line).substr(channel, via - channel);
    const size_t from = way.find(" : "), to = way.find(" -> ");
    if (from == std::string_view::npos || to == std::string_view::npos) continue;
    // The sending rank writes the line, except for lines with [receive]. A link begins at rank 0.
    const bool receives = way.ends_with("[receive]");
    const bool is_first_rank = (receives ? way.substr(to + 4) : way.substr(from + 3))[0] == '0';
    std::istringstream rest(line.substr(via + kVia.size()));
    if (std::string path; rest >> path) (is_first_rank ? paths.out : paths.in).insert(path);
  }
  return paths;
}

const char* NcclLog::WhyUnknown() {
  return FileName().empty() ? "NCCL_DEBUG is set without an NCCL_DEBUG_FILE of a fixed name"
                            : "NCCL's log does not say";
}

std::string LinkPaths::Names() const {
  std::set<std::string> all = out;
  all.insert(in.begin(), in.end());
  return fmt::format("{}", fmt::join(all, ", "));
}

std::vector<std::string> SlowLinks(const LinkPaths& paths, int32_t stage, int32_t n_stages,
                                   bool previous_is_here) {
  const auto leads = [](const std::set<std::string>& ways, std::string_view prefix) {
    return std::any_of(ways.begin(), ways.end(),
                       [&](const std::string& way) { return way.starts_with(prefix); });
  };
  // The first stage's incoming link and the last stage's outgoing link carry only tokens, which are
  // small.
  const std::set<std::string> none;
  const std::set<std::string>& out = stage + 1 < n_stages ? paths.out : none;
  const std::set<std::string>& in = stage > 0 ? paths.in : none;
  std::vector<std::string> slow;
  // It is unknown where the next stage runs. If it is reached over the network, it reports that
  // itself.
  if (leads(out, "SHM") || leads(in, "SHM") || (previous_is_here && leads(in, "NET"))) {
    slow.push_back(
        "a neighbour on this machine is reached through host memory or the network: peer access "
        "between the GPUs would be faster (is NCCL_P2P_DISABLE set, or the IOMMU on?)");
  }
  if (!previous_is_here && leads(in, "NET/Socket")) {
    slow.push_back(
        "a neighbour on another machine is reached over TCP: InfiniBand or RoCE would be faster "
        "(is its NCCL network plugin installed, or the wrong --nccl-interface given?)");
  }
  return slow;
}

}  // namespace stagecoach::worker
