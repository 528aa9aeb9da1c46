// What NCCL says of itself, and nowhere else: how a connection goes.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace stagecoach::worker {

// How the links of this process go: "P2P/CUMEM", "SHM/direct/direct", "NET/Socket/0". Of a link
// that ends here NCCL may say nothing; over the network it does.
struct LinkPaths {
  std::set<std::string> out, in;

  // "P2P/CUMEM, NET/Socket/0"; empty: nothing is known.
  std::string Names() const;
};

// For people: links of hidden states that are slower than they could be. Of two neighbours at least
// one says it. previous_is_here: on this machine.
std::vector<std::string> SlowLinks(const LinkPaths& paths, int32_t stage, int32_t n_stages,
                                   bool previous_is_here);

class NcclLog {
 public:
  // Turns NCCL's log on, into a file of this process, unless the user has it on already. Before
  // NCCL is loaded.
  static void Redirect();
  // Of the connections made so far.
  static LinkPaths Paths();
  // The ways in `text`, which is NCCL's log.
  static LinkPaths PathsIn(const std::string& text);
  // If Paths() is empty.
  static const char* WhyUnknown();
};

}  // namespace stagecoach::worker
