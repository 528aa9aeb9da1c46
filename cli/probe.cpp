#include "cli/probe.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <string_view>

#include "common/host_port.h"

namespace stagecoach::cli {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr std::chrono::seconds kPatience(1);
constexpr char kRequest[] = "GET /version HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n";
// "HTTP/" has 5 bytes; these also identify a TLS record and an HTTP/2 frame.
constexpr size_t kBegin = 5;

Spoken WhatBegins(std::string_view text) {
  if (text.empty()) return Spoken::kNothing;
  if (text.starts_with("HTTP/")) return Spoken::kHttp;
  // The first bytes of a TLS 1.x alert, and the type of an HTTP/2 SETTINGS or GOAWAY frame.
  if (text.size() > 1 && text[0] == 0x15 && text[1] == 0x03) return Spoken::kTls;
  if (text.size() > 3 && (text[3] == 0x04 || text[3] == 0x07)) return Spoken::kHttp2;
  return Spoken::kOther;
}

}  // namespace

Spoken Probe(const std::string& address) {
  const HostPort place = SplitHostPort(address);
  asio::io_context loop;
  boost::system::error_code error;
  const auto found = tcp::resolver(loop).resolve(place.host, place.port, error);
  if (error) return Spoken::kNothing;
  tcp::socket socket(loop);
  std::string begin(kBegin, '\0');
  size_t n_read = 0;
  asio::async_connect(socket, found, [&](const auto& failed, const auto&) {
    if (failed) return;
    asio::async_write(
        socket, asio::buffer(kRequest, sizeof kRequest - 1), [&](const auto&, size_t) {
          asio::async_read(socket, asio::buffer(begin), [&](const auto&, size_t n) { n_read = n; });
        });
  });
  loop.run_for(kPatience);
  // Closing the socket ends an unfinished read, which then reports the bytes it has.
  socket.close(error);
  loop.restart();
  loop.run();
  return WhatBegins(std::string_view(begin).substr(0, n_read));
}

}  // namespace stagecoach::cli
