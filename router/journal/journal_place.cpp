#include "router/journal/journal_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/status.h"
#include "common/url_text.h"
#include "router/journal/journal.h"
#include "router/journal/journal_file.h"
#include "router/journal/lease_owner.h"
#include "router/journal/redis_journal.h"

namespace stagecoach::router {
namespace {

constexpr char kDefaultName[] = "router";
constexpr size_t kLongestName = 200;

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

absl::StatusOr<std::string> NameIn(const std::string& query) {
  if (query.empty()) return kDefaultName;
  std::string name = PercentDecoded(QueryValue(query, "name"));
  if (name.empty() || name.size() > kLongestName || !std::ranges::all_of(name, IsNameCharacter)) {
    return absl::InvalidArgumentError(
        "?name=NAME gives the journal's name: letters, digits, '-', '_' and '.'");
  }
  return name;
}

}  // namespace

absl::StatusOr<std::unique_ptr<JournalPlace>> MakeJournalPlace(const JournalOptions& options) {
  if (!IsRedisUrl(options.place)) return std::make_unique<JournalFolder>(options.place);
  SC_ASSIGN_OR_RETURN(RedisUrl url, ParseRedisUrl(options.place));
  SC_ASSIGN_OR_RETURN(std::string name, NameIn(url.query));
  return std::make_unique<RedisJournalPlace>(
      RedisJournalOptions{.url = std::move(url),
                          .name = std::move(name),
                          .owner = NewLeaseOwner(),
                          .lease = options.lease,
                          .deadline = options.deadline,
                          .keep = options.keep + options.lease});
}

}  // namespace stagecoach::router
