#include "common/local_host.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach {
namespace {

TEST_CASE("the host name is the part before the port") {
  CHECK(HostName("localhost:8000") == "localhost");
  CHECK(HostName("localhost") == "localhost");
  CHECK(HostName("[::1]:8000") == "::1");
  CHECK(HostName("[::1]") == "::1");
  CHECK(HostName("[") == "");
  CHECK(HostName("") == "");
}

TEST_CASE("only local names and IP addresses are local; names that DNS could point here are not") {
  for (const char* host :
       {"localhost", "LOCALHOST:80", "localhost.", "app.localhost:3000", "127.0.0.1:8000",
        "127.9.9.9", "[::1]:8000", "10.0.0.7:8000", "[fe80::1]"}) {
    INFO(host);
    CHECK(IsLocalHost(host));
  }
  for (const char* host : {"", "evil.example", "localhost.evil.example:8000",
                           "127.0.0.1.evil.example", "notlocalhost", "0x7f.1", "2130706433"}) {
    INFO(host);
    CHECK_FALSE(IsLocalHost(host));
  }
  CHECK(IsLoopbackName("127.0.0.1"));
  CHECK_FALSE(IsLoopbackName("10.0.0.7"));
}

}  // namespace
}  // namespace stagecoach
