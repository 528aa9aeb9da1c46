#include "router/frontend/http/client_counts.h"

#include <vector>

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router::http {
namespace {

using boost::asio::ip::make_address;

TEST_CASE("each client has its own limit of connections") {
  ClientCounts counts(2);
  std::vector<ClientCounts::Place> places;
  for (int i = 0; i < 2; ++i) places.push_back(*counts.Take(make_address("10.0.0.1")));
  CHECK_FALSE(counts.Take(make_address("10.0.0.1")));
  CHECK_FALSE(counts.Take(make_address("::ffff:10.0.0.1")));
  CHECK(counts.Take(make_address("10.0.0.2")));
  places.pop_back();
  CHECK(counts.Take(make_address("10.0.0.1")));
}

TEST_CASE("an IPv6 network counts as one client") {
  ClientCounts counts(1);
  const auto place = counts.Take(make_address("2001:db8::1"));
  CHECK(place);
  CHECK_FALSE(counts.Take(make_address("2001:db8::2:3")));
  CHECK(counts.Take(make_address("2001:db8:0:1::1")));
}

}  // namespace
}  // namespace stagecoach::router::http
