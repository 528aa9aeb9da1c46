#include "worker/transport/nccl/nccl_log.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach::worker {

TEST_CASE("nccl log: how connections go is read out of it") {
  CHECK(NcclLog::PathsIn("").empty());
  const std::string text =
      "host:77:79 [0] NCCL INFO Using network Socket\n"
      "host:77:79 [0] NCCL INFO Channel 00/1 : 0[0] -> 1[1] via P2P/CUMEM\n"
      "host:77:81 [0] NCCL INFO Channel 00/1 : 0[0] -> 1[1] via P2P/CUMEM comm 0x1\n"
      "host:77:81 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [send] via NET/Socket/0 comm 0x2\n"
      "host:77:81 [1] NCCL INFO Connected all rings via nothing\n";
  CHECK(NcclLog::PathsIn(text) == std::set<std::string>{"NET/Socket/0", "P2P/CUMEM"});
}

}  // namespace stagecoach::worker
