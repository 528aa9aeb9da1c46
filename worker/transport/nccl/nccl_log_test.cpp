#include "worker/transport/nccl/nccl_log.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach::worker {

using Ways = std::set<std::string>;

TEST_CASE("nccl log: the kind of connection is read from the log for each side of a stage") {
  CHECK(NcclLog::PathsIn("").Names().empty());
  // An incoming link from a GPU on this machine, and lines of both directions to another machine.
  const std::string text =
      "host:77:79 [0] NCCL INFO Using network Socket\n"
      "host:77:81 [1] NCCL INFO Channel 00/1 : 1[1] -> 0[0] via P2P/CUMEM\n"
      "host:77:81 [1] NCCL INFO Channel 00/0 : 0[1] -> 1[0] [send] via NET/Socket/0 comm 0x2\n"
      "host:77:81 [1] NCCL INFO Channel 00/0 : 1[0] -> 0[1] [receive] via NET/Socket/0\n"
      "host:77:81 [1] NCCL INFO Connected all rings via nothing\n";
  const LinkPaths paths = NcclLog::PathsIn(text);
  CHECK(paths.in == Ways{"P2P/CUMEM"});
  CHECK(paths.out == Ways{"NET/Socket/0"});
  CHECK(paths.Names() == "NET/Socket/0, P2P/CUMEM");
  const LinkPaths others = NcclLog::PathsIn(
      "host:78:81 [0] NCCL INFO Channel 00/0 : 0[1] -> 1[0] [receive] via NET/Socket/0\n"
      "host:78:81 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n");
  CHECK(others.in == Ways{"NET/Socket/0"});
  CHECK(others.out == Ways{"SHM/direct/direct"});
}

TEST_CASE("nccl log: each link is judged by the places of its two ends") {
  const Ways tcp{"NET/Socket/0"}, peer{"P2P/CUMEM"};
  const auto slow = [](const Ways& in, const Ways& out, int32_t stage, bool previous_is_here) {
    std::string all;
    for (const std::string& line : SlowLinks({out, in}, stage, 4, previous_is_here)) all += line;
    return all;
  };
  // Stages 0 and 1 are on one machine, 2 and 3 on another.
  CHECK(slow(tcp, peer, 0, false).empty());
  CHECK(slow(peer, tcp, 1, true).empty());
  CHECK(slow({}, tcp, 1, true).empty());
  CHECK(slow(tcp, peer, 2, false).find("over TCP") != std::string::npos);
  CHECK(slow(tcp, peer, 2, false).find("this machine") == std::string::npos);
  CHECK(slow(peer, tcp, 3, true).empty());
  // All stages are on one machine.
  CHECK(slow(tcp, peer, 2, true).find("this machine") != std::string::npos);
  CHECK(slow({}, {"SHM/direct/direct"}, 0, false).find("this machine") != std::string::npos);
  CHECK(slow(peer, {"SHM/direct/direct"}, 3, true).empty());
  CHECK(slow({"NET/IB/0"}, {"NET/IB/0"}, 2, false).empty());
}

}  // namespace stagecoach::worker
