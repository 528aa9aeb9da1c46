#include "common/listen_check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <string>

namespace stagecoach {
namespace {

bool Contains(const absl::Status& status, const std::string& text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

// Listens on a port of 127.0.0.1 that the system has chosen.
class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    REQUIRE(bind(fd_, reinterpret_cast<sockaddr*>(&at), size) == 0);
    REQUIRE(listen(fd_, 1) == 0);
    REQUIRE(getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size) == 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  }
  ~Listener() { close(fd_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  const std::string& address() const { return address_; }

 private:
  const int fd_;
  std::string address_;
};

TEST_CASE("a port in use is refused by flag and address, and is usable once it is closed") {
  std::string address;
  {
    const Listener taken;
    address = taken.address();
    const absl::Status refused = CheckCanListen("--grpc", address);
    REQUIRE(absl::IsUnavailable(refused));
    CHECK(Contains(refused, "cannot listen on " + address + " (--grpc)"));
    CHECK(Contains(refused, "process " + std::to_string(getpid()) + " (common_test)"));
  }
  CHECK(CheckCanListen("--grpc", address).ok());
  CHECK(CheckCanListen("--grpc", address).ok());  // the check itself leaves nothing behind
}

TEST_CASE("a free port of this machine is accepted, an address of another machine is not") {
  CHECK(CheckCanListen("--http", "127.0.0.1:0").ok());
  CHECK(CheckCanListen("--http", "0.0.0.0:0").ok());
  CHECK(CheckCanListen("--http", "localhost:0").ok());
  // TEST-NET-1 is nobody's.
  CHECK(Contains(CheckCanListen("--http", "192.0.2.1:0"), "(--http)"));
  CHECK(absl::IsUnavailable(CheckCanListen("--http", "no.such.host.invalid:0")));
}

}  // namespace
}  // namespace stagecoach
