#include "router/frontend/http/cors.h"

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router::http {
namespace {

bool Comes(const Cors& cors, const std::string& host, const std::string& origin = "") {
  HttpRequest request;
  request.host = host;
  request.origin = origin;
  return cors.CheckSource(request).ok();
}

TEST_CASE("a loopback server refuses requests under another host name") {
  Cors cors({"https://chat.example.org"});
  CHECK(Comes(cors, "evil.example"));  // unguarded: it serves other machines, under any name
  cors.GuardLoopback("box.lan");
  for (const char* host : {"localhost:8000", "127.0.0.1:8000", "[::1]:8000", "10.0.0.7",
                           "box.lan:1", "Chat.example.org", ""}) {
    INFO(host);
    CHECK(Comes(cors, host));
  }
  for (const char* host : {"evil.example:8000", "localhost.evil.example", "example.org"}) {
    INFO(host);
    CHECK_FALSE(Comes(cors, host));
  }
}

TEST_CASE("a loopback server refuses requests from pages of another site") {
  Cors cors({"https://chat.example.org"});
  cors.GuardLoopback("127.0.0.1");
  for (const char* origin : {"http://localhost:3000", "http://127.0.0.1:8000", "http://[::1]:80",
                             "https://chat.example.org", "http://10.0.0.7:8000"}) {
    INFO(origin);
    CHECK(Comes(cors, "10.0.0.7:8000", origin));
  }
  for (const char* origin :
       {"https://evil.example", "null", "http://6.6.6.6", "http://chat.example.org"}) {
    INFO(origin);
    CHECK_FALSE(Comes(cors, "localhost:8000", origin));
  }
}

TEST_CASE("a wildcard origin allows every host name") {
  Cors cors({"*"});
  cors.GuardLoopback("localhost");
  CHECK(Comes(cors, "evil.example", "https://evil.example"));
}

}  // namespace
}  // namespace stagecoach::router::http
