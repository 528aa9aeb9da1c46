#include "common/metrics/metrics_server.h"

#include <arpa/inet.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "catch2/catch_test_macros.hpp"

namespace stagecoach {
namespace {

// A TCP socket of this machine that is closed at the end.
class Socket {
 public:
  Socket() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() { close(fd_); }

  int ListenOnAnyPort() {
    sockaddr_in address = Loopback(0);
    REQUIRE(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(listen(fd_, 1) == 0);
    socklen_t size = sizeof(address);
    REQUIRE(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    return ntohs(address.sin_port);
  }

  std::string Get(int port, const std::string& path) {
    sockaddr_in address = Loopback(port);
    REQUIRE(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
    REQUIRE(send(fd_, request.data(), request.size(), 0) == ssize_t(request.size()));
    std::string answer;
    char buffer[4096];
    for (ssize_t n; (n = recv(fd_, buffer, sizeof(buffer), 0)) > 0;) answer.append(buffer, n);
    return answer;
  }

 private:
  static sockaddr_in Loopback(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    return address;
  }

  const int fd_;
};

TEST_CASE("an address in use is refused, any free port is told, and the page has the sources") {
  auto registry = std::make_shared<prometheus::Registry>();
  prometheus::BuildGauge().Name("answer").Register(*registry).Add({}).Set(42);
  {
    Socket taken;
    const std::string address = "127.0.0.1:" + std::to_string(taken.ListenOnAnyPort());
    const auto refused = ServeMetrics(address, {registry});
    REQUIRE(absl::IsUnavailable(refused.status()));
    CHECK(refused.status().message().find(address) != std::string::npos);
  }
  const auto address = ServeMetrics("127.0.0.1:0", {registry});
  REQUIRE(address.ok());
  const int port = std::stoi(address->substr(address->rfind(':') + 1));
  CHECK(port > 0);
  CHECK(Socket().Get(port, "/metrics").find("answer 42") != std::string::npos);
  registry.reset();
  CHECK(Socket().Get(port, "/metrics").find("answer 42") == std::string::npos);
}

}  // namespace
}  // namespace stagecoach
