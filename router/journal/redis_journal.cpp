#include "router/journal/redis_journal.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <random>
#include <thread>

#include "common/status.h"
#include "router/journal/lease_owner.h"

namespace stagecoach::router {
namespace {

constexpr std::string_view kRedisFormat = "1";
constexpr std::chrono::milliseconds kLookAtLeaseEvery(50);
constexpr size_t kAtOnce = 256;      // streams or rows that are read in one exchange
constexpr size_t kEntryBytes = 100;  // about what Redis needs for an entry besides its bytes

// KEYS of all scripts: lease, router, streams, rows. ARGV[1] and [2]: the owner, the lease's time.

// ARGV[3]: an owner that has ended; [4]: "1" removes what is there. Returns another owner, or 1.
constexpr std::string_view kTake = R"(
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[3] then return holder end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if ARGV[4] == '1' then redis.call('DEL', KEYS[2], KEYS[3], KEYS[4]) end
return 1)";

// ARGV[3]: time for which the content stays; then commands, each as its length and its words.
// Returns 1, or who has the lease instead, which is empty if nobody has. The commands come first: a
// Redis whose memory is full refuses only a script's first write.
constexpr std::string_view kWrite = R"(
local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then return holder or '' end
local at = 4
while at <= #ARGV do
  local n = tonumber(ARGV[at])
  redis.call(unpack(ARGV, at + 1, at + n))
  at = at + n + 1
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
for i = 2, 4 do redis.call('PEXPIRE', KEYS[i], ARGV[3]) end
return 1)";

constexpr std::string_view kGiveUp = R"(
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1)";

std::string Text(uint64_t number) { return fmt::format("{}", number); }

std::string Milliseconds(std::chrono::milliseconds time) { return fmt::format("{}", time.count()); }

// Removes and returns the number at the start, and the space after it.
std::optional<uint64_t> TakeNumber(std::string_view& text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.begin()));
  if (!text.empty()) text.remove_prefix(1);
  return number;
}

absl::Status Damaged(std::string_view what) {
  return absl::DataLossError(fmt::format("{} of the journal cannot be read", what));
}

}  // namespace

RedisJournal::RedisJournal(const RedisJournalOptions& options,
                           std::unique_ptr<RedisConnection> redis)
    : options_(options),
      owner_(fmt::format("{}/{:08x}", options.owner, std::random_device()())),
      keys_{Key("lease"), Key("router"), Key("streams"), Key("rows")},
      redis_(std::move(redis)) {}

RedisJournal::~RedisJournal() {
  if (!redis_->is_open()) return;
  if (const auto given = RunScript(kGiveUp, {owner_}); !given.ok()) {
    spdlog::warn("journal: {}", std::string(given.status().message()));
  }
}

// The braces put all keys of a journal on the same node of a cluster.
std::string RedisJournal::Key(std::string_view part) const {
  return fmt::format("stagecoach:journal:{{{}}}:{}", options_.name, part);
}

absl::StatusOr<std::unique_ptr<RedisJournal>> RedisJournal::Open(
    const RedisJournalOptions& options, What what, std::chrono::milliseconds patience) {
  SC_ASSIGN_OR_RETURN(std::unique_ptr<RedisConnection> redis,
                      RedisConnection::Open(options.url, Clock::now() + options.deadline));
  std::unique_ptr<RedisJournal> journal(new RedisJournal(options, std::move(redis)));
  SC_RETURN_IF_ERROR(journal->TakeLease(what, patience));
  return journal;
}

absl::StatusOr<RedisReply> RedisJournal::RunScript(std::string_view script,
                                                   const std::vector<std::string>& args) {
  const std::string n_keys = Text(keys_.size());
  RedisCommand command = {"EVAL", script, n_keys};
  command.insert(command.end(), keys_.begin(), keys_.end());
  command.insert(command.end(), args.begin(), args.end());
  return redis_->Run(command, Deadline());
}

absl::StatusOr<std::string> RedisJournal::TryTakeLease(What what, std::string_view ended) {
  SC_ASSIGN_OR_RETURN(const RedisReply reply,
                      RunScript(kTake, {owner_, Milliseconds(options_.lease), std::string(ended),
                                        what == What::kNew ? "1" : "0"}));
  return std::string(reply.text());
}

absl::Status RedisJournal::TakeLease(What what, std::chrono::milliseconds patience) {
  const Clock::time_point end = Clock::now() + patience;
  std::string ended;
  for (bool is_first = true;; is_first = false) {
    SC_ASSIGN_OR_RETURN(const std::string holder, TryTakeLease(what, ended));
    if (holder.empty()) return absl::OkStatus();
    const bool is_own = holder.starts_with(options_.owner + "/");
    if (holder != ended && (is_own || HasEnded(holder))) {
      ended = holder;
      continue;
    }
    if (Clock::now() >= end) {
      return absl::FailedPreconditionError(fmt::format("{} holds its lease", Describe(holder)));
    }
    if (is_first) {
      spdlog::info("journal: {} holds the lease; waiting until it ends, for at most {} ms",
                   Describe(holder), patience.count());
    }
    std::this_thread::sleep_for(kLookAtLeaseEvery);
  }
}

absl::Status RedisJournal::Begin() {
  is_in_transaction_ = true;
  return absl::OkStatus();
}

absl::Status RedisJournal::Commit() {
  is_in_transaction_ = false;
  std::vector<std::string> args = {owner_, Milliseconds(options_.lease),
                                   Milliseconds(options_.keep)};
  std::move(writes_.begin(), writes_.end(), std::back_inserter(args));
  writes_.clear();
  SC_ASSIGN_OR_RETURN(const RedisReply reply, RunScript(kWrite, args));
  if (reply.number() == 1) return absl::OkStatus();
  if (reply.text().empty()) {
    return absl::UnavailableError("its lease has ended, because it was not renewed in time");
  }
  return absl::FailedPreconditionError(
      fmt::format("{} has taken its lease", Describe(reply.text())));
}

absl::Status RedisJournal::KeepLease() { return Commit(); }

absl::Status RedisJournal::Write(std::vector<std::string> command) {
  writes_.push_back(Text(command.size()));
  std::move(command.begin(), command.end(), std::back_inserter(writes_));
  return is_in_transaction_ ? absl::OkStatus() : Commit();
}

absl::Status RedisJournal::Clear() {
  is_in_transaction_ = false;
  writes_.clear();
  return Write({"DEL", Key("router"), Key("streams"), Key("rows")});
}

absl::Status RedisJournal::SetRouter(const v1::RouterRecord& router) {
  return Write({"HSET", Key("router"), "format", std::string(kRedisFormat), "record",
                router.SerializeAsString(), "restores", "0"});
}

absl::Status RedisJournal::SetRestores(uint64_t n_restores) {
  return Write({"HSET", Key("router"), "restores", Text(n_restores)});
}

void RedisJournal::CountStream(uint64_t number, size_t n_bytes) {
  streams_.emplace(number, n_bytes + kEntryBytes);
  n_bytes_ += n_bytes + kEntryBytes;
}

void RedisJournal::CountRow(uint64_t row, size_t n_bytes) {
  rows_.emplace_back(row, n_bytes + kEntryBytes);
  n_bytes_ += n_bytes + kEntryBytes;
}

absl::Status RedisJournal::AddStream(uint64_t number, uint64_t first_row, std::string_view record) {
  std::string value = fmt::format("{} {}", first_row, record);
  CountStream(number, value.size());
  return Write({"HSET", Key("streams"), Text(number), std::move(value)});
}

absl::Status RedisJournal::AddEvents(uint64_t row, uint64_t unix_s, std::string_view events) {
  std::string value = fmt::format("{} {} {}", row, unix_s, events);
  CountRow(row, value.size());
  return Write({"RPUSH", Key("rows"), std::move(value)});
}

absl::Status RedisJournal::RemoveStream(uint64_t number) {
  const auto stream = streams_.extract(number);
  if (!stream.empty()) n_bytes_ -= stream.mapped();
  return Write({"HDEL", Key("streams"), Text(number)});
}

absl::Status RedisJournal::RemoveRowsBefore(uint64_t row) {
  uint64_t n_removed = 0;
  for (; !rows_.empty() && rows_.front().first < row; ++n_removed) {
    n_bytes_ -= rows_.front().second;
    rows_.pop_front();
  }
  if (n_removed == 0) return absl::OkStatus();
  return Write({"LTRIM", Key("rows"), Text(n_removed), "-1"});
}

absl::StatusOr<JournalContent> RedisJournal::Read() {
  JournalContentBuilder builder;
  SC_ASSIGN_OR_RETURN(
      const RedisReply router,
      redis_->Run({"HMGET", Key("router"), "format", "record", "restores"}, Deadline()));
  if (router.size() == 3 && !router.at(0).is_nil()) {
    if (router.at(0).text() != kRedisFormat) {
      return absl::DataLossError("another version of the router wrote the journal");
    }
    std::string_view restores = router.at(2).text();
    SC_RETURN_IF_ERROR(builder.SetRouter(router.at(1).text(), TakeNumber(restores).value_or(0)));
  }
  SC_RETURN_IF_ERROR(ReadStreams(builder));
  SC_RETURN_IF_ERROR(ReadRows(builder));
  return builder.Take();
}

absl::Status RedisJournal::ReadStreams(JournalContentBuilder& builder) {
  SC_ASSIGN_OR_RETURN(const RedisReply all, redis_->Run({"HKEYS", Key("streams")}, Deadline()));
  std::vector<uint64_t> numbers;
  for (size_t i = 0; i < all.size(); ++i) {
    std::string_view text = all.at(i).text();
    numbers.push_back(TakeNumber(text).value_or(0));
  }
  std::sort(numbers.begin(), numbers.end());
  for (size_t begin = 0; begin < numbers.size(); begin += kAtOnce) {
    const size_t end = std::min(begin + kAtOnce, numbers.size());
    std::vector<std::string> fields;
    for (size_t i = begin; i < end; ++i) fields.push_back(Text(numbers[i]));
    RedisCommand command = {"HMGET", keys_[2]};
    command.insert(command.end(), fields.begin(), fields.end());
    SC_ASSIGN_OR_RETURN(const RedisReply some, redis_->Run(command, Clock::now() + options_.lease));
    for (size_t i = begin; i < end; ++i) {
      std::string_view value = some.at(i - begin).text();
      CountStream(numbers[i], value.size());
      const std::optional<uint64_t> first_row = TakeNumber(value);
      if (!first_row) return Damaged("a stream");
      SC_RETURN_IF_ERROR(builder.AddStream(numbers[i], *first_row, value));
    }
    SC_RETURN_IF_ERROR(KeepLease());
  }
  return absl::OkStatus();
}

absl::Status RedisJournal::ReadRows(JournalContentBuilder& builder) {
  for (size_t begin = 0;; begin += kAtOnce) {
    SC_ASSIGN_OR_RETURN(const RedisReply some,
                        redis_->Run({"LRANGE", Key("rows"), Text(begin), Text(begin + kAtOnce - 1)},
                                    Clock::now() + options_.lease));
    for (size_t i = 0; i < some.size(); ++i) {
      std::string_view value = some.at(i).text();
      const size_t n_bytes = value.size();
      const std::optional<uint64_t> row = TakeNumber(value);
      const std::optional<uint64_t> unix_s = TakeNumber(value);
      if (!row || !unix_s) return Damaged("a row");
      CountRow(*row, n_bytes);
      SC_RETURN_IF_ERROR(builder.AddRow(*row, *unix_s, value));
    }
    if (some.size() < kAtOnce) return absl::OkStatus();
    SC_RETURN_IF_ERROR(KeepLease());
  }
}

std::string RedisJournalPlace::name() const {
  return fmt::format("{}?name={}", options_.url.Redacted(), options_.name);
}

absl::StatusOr<std::unique_ptr<JournalStore>> RedisJournalPlace::Open() {
  return RedisJournal::Open(options_, RedisJournal::What::kExisting,
                            options_.lease + options_.deadline);
}

absl::StatusOr<std::unique_ptr<JournalStore>> RedisJournalPlace::OpenNew() {
  return RedisJournal::Open(options_, RedisJournal::What::kNew, std::chrono::milliseconds(0));
}

void RedisJournalPlace::Discard(std::unique_ptr<JournalStore> store) {
  auto* const journal = static_cast<RedisJournal*>(store.get());
  // What is left after a failure here, a router that comes soon may still find.
  if (journal != nullptr) journal->Clear().IgnoreError();
}

}  // namespace stagecoach::router
