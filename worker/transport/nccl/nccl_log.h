// What NCCL says of itself, and nowhere else: how a connection goes.
#pragma once

#include <set>
#include <string>

namespace stagecoach::worker {

class NcclLog {
 public:
  // Turns NCCL's log on, into a file of this process, unless the user has it on already. Before
  // NCCL is loaded.
  static void Redirect();
  // Of the connections made so far: "P2P/CUMEM", "SHM/direct/direct", "NET/Socket/0"; empty if the
  // log does not say.
  static std::set<std::string> Paths();
  // The ways in `text`, which is NCCL's log.
  static std::set<std::string> PathsIn(const std::string& text);
};

}  // namespace stagecoach::worker
