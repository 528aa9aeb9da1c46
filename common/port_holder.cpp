#include "common/port_holder.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

#include "common/proc_file.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

// Adds "socket:[INODE]" for each TCP socket that listens on the port; see proc_net_tcp(5).
void AddListeners(const std::string& table, uint16_t port, std::set<std::string>& sockets) {
  constexpr std::string_view kListens = "0A";
  const std::string ending = fmt::format(":{:04X}", port);
  std::ifstream file(table);
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
    fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >>
        timeout >> inode;
    if (state == kListens && local.ends_with(ending)) sockets.insert("socket:[" + inode + "]");
  }
}

bool HasOneOf(const fs::path& descriptors, const std::set<std::string>& sockets) {
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator(descriptors, unreadable)) {
    std::error_code closed;
    if (sockets.contains(fs::read_symlink(entry.path(), closed).string())) return true;
  }
  return false;
}

}  // namespace

std::string PortHolder(uint16_t port, const std::string& root) {
  const std::string proc = root + "/proc";
  std::set<std::string> sockets;
  for (const char* table : {"/net/tcp", "/net/tcp6"}) AddListeners(proc + table, port, sockets);
  if (sockets.empty()) return "";
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator(proc, unreadable)) {
    const std::string pid = entry.path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!HasOneOf(entry.path() / "fd", sockets)) continue;
    return fmt::format("process {} ({})", pid,
                       ReadFirstLine(entry.path().string() + "/comm").value_or("ended"));
  }
  return "";
}

}  // namespace stagecoach
