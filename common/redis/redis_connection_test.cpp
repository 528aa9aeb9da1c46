#include "common/redis/redis_connection.h"

#include <csignal>
#include <cstdlib>
#include <string>

#include "catch2/catch_test_macros.hpp"
#include "common/redis/testing/redis_server.h"

namespace stagecoach {
namespace {

using Clock = RedisConnection::Clock;

Clock::time_point Later() { return Clock::now() + std::chrono::seconds(60); }
Clock::time_point Soon() { return Clock::now() + std::chrono::milliseconds(50); }

absl::StatusOr<std::unique_ptr<RedisConnection>> Connect(const std::string& url) {
  return RedisConnection::Open(*ParseRedisUrl(url), Later());
}

TEST_CASE("many commands go out at once, and their replies come in order") {
  const RedisServer server;
  auto redis = Connect(server.url() + "/2");
  REQUIRE(redis.ok());
  const std::string bytes = std::string("\0\r\n", 3) + std::string(300'000, 'x');
  auto replies = (*redis)->Exchange({{"SET", "key", bytes},
                                     {"GET", "key"},
                                     {"GET", "none"},
                                     {"RPUSH", "list", "a", "b"},
                                     {"LRANGE", "list", "0", "-1"},
                                     {"INCR", "list"}},
                                    Later());
  REQUIRE(replies.ok());
  REQUIRE(replies->size() == 6);
  CHECK((*replies)[0].text() == "OK");
  CHECK((*replies)[1].text() == bytes);
  CHECK((*replies)[2].is_nil());
  CHECK((*replies)[3].number() == 2);
  REQUIRE((*replies)[4].size() == 2);
  CHECK((*replies)[4].at(1).text() == "b");
  CHECK((*replies)[5].status().code() == absl::StatusCode::kUnavailable);
  CHECK((*redis)->is_open());
  CHECK((*redis)->Run({"GET", "key"}, Later())->text() == bytes);
  CHECK(Connect(server.url()).value()->Run({"GET", "key"}, Later())->is_nil());
}

TEST_CASE("users, passwords and databases are refused with their reason") {
  const RedisServer server({"--requirepass", "secret"});
  std::string place = server.url().substr(sizeof("redis://") - 1);
  CHECK(Connect("redis://:secret@" + place).ok());
  CHECK(Connect("redis://default:secret@" + place).ok());
  for (const char* who : {"", ":wrong@", "nobody:secret@"}) {
    CAPTURE(who);
    const absl::Status status = Connect("redis://" + (who + place)).status();
    CHECK(status.code() == absl::StatusCode::kPermissionDenied);
    CHECK(std::string(status.message()).find("secret") == std::string::npos);
  }
  CHECK(Connect("redis://:secret@" + place + "/99").status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("with TLS, Redis must show a certificate for its host") {
  const TempDir dir;
  for (const char* name : {"127.0.0.1", "127.0.0.2"}) {
    CAPTURE(name);
    const std::string cert = dir.File(name) + std::string(".pem"), key = cert + ".key";
    const std::string make =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "
        "/CN=redis -addext subjectAltName=IP:" +
        (name + (" -out " + cert)) + " -keyout " + key + " 2>/dev/null";
    REQUIRE(std::system(make.c_str()) == 0);
    const RedisServer server({"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file",
                              cert, "--tls-auth-clients", "no"},
                             RedisServer::Link::kTls);
    unsetenv("SSL_CERT_FILE");
    CHECK(Connect(server.url()).status().code() == absl::StatusCode::kUnavailable);
    setenv("SSL_CERT_FILE", cert.c_str(), 1);
    const auto redis = Connect(server.url());
    unsetenv("SSL_CERT_FILE");
    CHECK(redis.ok() == (std::string(name) == "127.0.0.1"));
    if (!redis.ok()) continue;
    const std::string bytes(300'000, 'x');
    CHECK((*redis)->Run({"ECHO", bytes}, Later())->text() == bytes);
  }
}

TEST_CASE("a full Redis says so") {
  const RedisServer server({"--maxmemory", "1"});
  auto redis = Connect(server.url());
  REQUIRE(redis.ok());
  CHECK((*redis)->Run({"SET", "a", "b"}, Later()).status().code() ==
        absl::StatusCode::kResourceExhausted);
  CHECK((*redis)->is_open());
}

TEST_CASE("a Redis that does not answer costs the time until the deadline, and the connection") {
  RedisServer server;
  auto redis = Connect(server.url());
  REQUIRE(redis.ok());
  server.Signal(SIGSTOP);
  CHECK((*redis)->Run({"PING"}, Soon()).status().code() == absl::StatusCode::kUnavailable);
  CHECK_FALSE((*redis)->is_open());
  // The kernel still accepts connections for it.
  CHECK(RedisConnection::Open(*ParseRedisUrl(server.url()), Soon()).status().code() ==
        absl::StatusCode::kUnavailable);
  server.Signal(SIGCONT);
  CHECK((*redis)->Run({"PING"}, Later()).status().code() == absl::StatusCode::kUnavailable);
  CHECK(Connect(server.url()).ok());
}

TEST_CASE("a Redis that is gone") {
  RedisServer server;
  auto redis = Connect(server.url());
  REQUIRE(redis.ok());
  server.Kill();
  CHECK((*redis)->Run({"PING"}, Later()).status().code() == absl::StatusCode::kUnavailable);
  const absl::Status status = Connect(server.url()).status();
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(std::string(status.message()).starts_with(server.url()));
}

}  // namespace
}  // namespace stagecoach
