// Reads from NCCL's log how connections are made. NCCL reports this nowhere else.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace stagecoach::worker {

// The transports of this process's links: "P2P/CUMEM", "SHM/direct/direct", "NET/Socket/0". For a
// link that ends here, NCCL may log nothing, except over the network.
struct LinkPaths {
  std::set<std::string> out, in;

  // "P2P/CUMEM, NET/Socket/0", for example. Empty: unknown.
  std::string Names() const;
};

// Messages for people about hidden-state links that are slower than they could be. At least one of
// the two neighbours reports a slow link. previous_is_here: the previous stage is on this machine.
std::vector<std::string> SlowLinks(const LinkPaths& paths, int32_t stage, int32_t n_stages,
                                   bool previous_is_here);

class NcclLog {
 public:
  // Turns NCCL's log on and sends it to a file of this process, unless the user has already turned
  // it on. Call it before NCCL is loaded.
  static void Redirect();
  // Transports of the connections made so far.
  static LinkPaths Paths();
  // Extracts the transports from `text`, a log of NCCL.
  static LinkPaths PathsIn(const std::string& text);
  // The reason why Paths() is empty.
  static const char* WhyUnknown();
};

}  // namespace stagecoach::worker
