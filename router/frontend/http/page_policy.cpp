#include "router/frontend/http/page_policy.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

#include <array>
#include <string>

namespace stagecoach::router::http {
namespace {

std::string Hash(std::string_view content) {
  std::array<uint8_t, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const uint8_t*>(content.data()), content.size(), digest.data());
  std::array<uint8_t, 4 * ((SHA256_DIGEST_LENGTH + 2) / 3) + 1> base64;
  EVP_EncodeBlock(base64.data(), digest.data(), static_cast<int>(digest.size()));
  return fmt::format("'sha256-{}'", reinterpret_cast<const char*>(base64.data()));
}

// "'sha256-...' 'sha256-...'" of the contents between each <tag> and </tag>; "'none'" if there are
// none.
std::string HashesOf(std::string_view html, std::string_view tag) {
  const std::string open = fmt::format("<{}>", tag);
  const std::string close = fmt::format("</{}>", tag);
  std::string hashes;
  for (size_t at = html.find(open); at != std::string_view::npos; at = html.find(open, at)) {
    at += open.size();
    const size_t end = html.find(close, at);
    if (end == std::string_view::npos) break;
    hashes += (hashes.empty() ? "" : " ") + Hash(html.substr(at, end - at));
  }
  return hashes.empty() ? "'none'" : hashes;
}

}  // namespace

HeaderFields PageFields(std::string_view html) {
  return {{"Content-Security-Policy",
           fmt::format("default-src 'none'; script-src {}; style-src {}; connect-src 'self'; "
                       "img-src data:; base-uri 'none'; form-action 'none'; "
                       "frame-ancestors 'none'; require-trusted-types-for 'script'; "
                       "trusted-types 'none'",
                       HashesOf(html, "script"), HashesOf(html, "style"))},
          {"X-Content-Type-Options", "nosniff"},
          {"Referrer-Policy", "no-referrer"},
          {"Cache-Control", "no-cache"}};
}

}  // namespace stagecoach::router::http
