#include "common/port_holder.h"

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

#include "common/temp_dir.h"

namespace stagecoach {
namespace {

TEST_CASE("the process that listens on a port is named, one that only connects is not") {
  const TempDir root;
  const std::filesystem::path proc = std::filesystem::path(root.path()) / "proc";
  std::filesystem::create_directories(proc / "net");
  std::filesystem::create_directories(proc / "77" / "fd");
  std::ofstream(proc / "77" / "comm") << "nginx\n";
  std::filesystem::create_symlink("socket:[4711]", proc / "77" / "fd" / "5");
  std::ofstream(proc / "net" / "tcp")
      << "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  "
         "timeout inode\n"
         "   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        "
         "0 4711 1 0 100 0 0 10 0\n"
         "   1: 0100007F:1F41 0100007F:1F40 01 00000000:00000000 00:00000000 00000000     0        "
         "0 4711 1 0 100 0 0 10 0\n";
  CHECK(PortHolder(8000, root.path()) == "process 77 (nginx)");
  CHECK(PortHolder(8001, root.path()).empty());
}

}  // namespace
}  // namespace stagecoach
