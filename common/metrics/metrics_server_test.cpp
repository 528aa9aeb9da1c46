#include "common/metrics/metrics_server.h"

#include <arpa/inet.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "common/metrics/metrics_page.h"

namespace stagecoach {
namespace {

// A local TCP socket, closed by its destructor.
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

  void Connect(int port) {
    sockaddr_in address = Loopback(port);
    REQUIRE(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  }

  std::string Get(int port, const std::string& path, const std::string& fields = "",
                  const std::string& method = "GET") {
    Connect(port);
    const std::string request = method + " " + path + " HTTP/1.1\r\n" + fields + "\r\n";
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

TEST_CASE("an address in use is refused, port 0 picks a free port, the page shows the sources") {
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

int PortOf(const std::string& address) { return std::stoi(address.substr(address.rfind(':') + 1)); }

TEST_CASE("idle connections do not block the page for others") {
  const auto address = ServeMetrics("127.0.0.1:0", {});
  REQUIRE(address.ok());
  std::vector<std::unique_ptr<Socket>> idle;
  for (int i = 0; i < 200; ++i) {
    idle.push_back(std::make_unique<Socket>());
    idle.back()->Connect(PortOf(*address));
  }
  CHECK(Socket().Get(PortOf(*address), "/metrics").starts_with("HTTP/1.1 200 OK\r\n"));
}

TEST_CASE("invalid requests for the page are refused") {
  const auto address = ServeMetrics("127.0.0.1:0", {});
  REQUIRE(address.ok());
  const int port = PortOf(*address);
  CHECK(Socket().Get(port, "/").starts_with("HTTP/1.1 404 "));
  CHECK(Socket().Get(port, "/metrics", "", "DELETE").starts_with("HTTP/1.1 405 "));
  CHECK(Socket().Get(port, "/metrics", "Host: localhost:1\r\n").starts_with("HTTP/1.1 200 "));
  CHECK(Socket().Get(port, "/metrics", "Host: evil.example\r\n").starts_with("HTTP/1.1 403 "));
  CHECK(Socket().Get(port, "/metrics", "X: " + std::string(20'000, 'x') + "\r\n").empty());
  CHECK(Socket().Get(port, "/metrics?x=y", "", "HEAD").ends_with("\r\n\r\n"));
}

TEST_CASE("A metric of several sources is declared once") {
  const auto source = [](const std::string& engine) {
    auto registry = std::make_shared<prometheus::Registry>();
    prometheus::BuildGauge().Name("running").Register(*registry).Add({{"engine", engine}}).Set(1);
    return registry;
  };
  CHECK(MetricsPage({source("0"), source("1")}) ==
        "# TYPE running gauge\n"
        "running{engine=\"0\"} 1\nrunning{engine=\"1\"} 1\n");
}

}  // namespace
}  // namespace stagecoach
