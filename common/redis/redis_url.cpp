#include "common/redis/redis_url.h"

#include <fmt/format.h>

#include <charconv>

#include "common/host_port.h"
#include "common/url_text.h"

namespace stagecoach {
namespace {

constexpr std::string_view kPlain = "redis://";
constexpr std::string_view kTls = "rediss://";

// Removes and returns what is before `mark`; removes the mark, too. Without one: takes everything.
std::string_view TakeUntil(char mark, std::string_view& text) {
  const std::string_view taken = text.substr(0, text.find(mark));
  text.remove_prefix(std::min(taken.size() + 1, text.size()));
  return taken;
}

template <typename Number>
bool ReadAll(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.begin(), text.end(), number);
  return error == std::errc() && end == text.end();
}

}  // namespace

std::string RedisUrl::Redacted() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return fmt::format("{}{}{}{}:{}/{}", tls ? kTls : kPlain, is_v6 ? "[" : "", host,
                     is_v6 ? "]" : "", port, database);
}

bool IsRedisUrl(std::string_view text) {
  return text.starts_with(kPlain) || text.starts_with(kTls);
}

absl::StatusOr<RedisUrl> ParseRedisUrl(std::string_view text) {
  RedisUrl url;
  url.tls = text.starts_with(kTls);
  if (!IsRedisUrl(text)) return absl::InvalidArgumentError("not a URL that begins with redis://");
  text.remove_prefix(url.tls ? kTls.size() : kPlain.size());
  std::string_view rest = TakeUntil('?', text);
  url.query = text;
  std::string_view place = TakeUntil('/', rest);
  if (!rest.empty() && !ReadAll(rest, url.database)) {
    return absl::InvalidArgumentError("the path of a Redis URL is the number of a database");
  }
  if (const size_t at = place.rfind('@'); at != std::string_view::npos) {
    std::string_view who = place.substr(0, at);
    place.remove_prefix(at + 1);
    url.user = PercentDecoded(TakeUntil(':', who));
    url.password = PercentDecoded(who);
  }
  const HostPort host_port = SplitHostPort(std::string(place));
  url.host = host_port.host;
  if (!host_port.port.empty()) url.port = host_port.port;
  uint16_t port = 0;
  if (url.host.empty() || !ReadAll(url.port, port) || port == 0) {
    return absl::InvalidArgumentError(
        "a Redis URL is redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]");
  }
  return url;
}

}  // namespace stagecoach
