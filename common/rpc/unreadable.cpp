#include "common/rpc/unreadable.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/wire_format_lite.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <string>

#include "common/status.h"
#include "common/text/utf8.h"

namespace stagecoach {
namespace {

namespace pb = google::protobuf;
using pb::internal::WireFormatLite;

constexpr int kMaxDepth = 100;  // protobuf's limit

// OK if all text is UTF-8 up to the end of the bytes or the first malformed field.
absl::Status FindBrokenText(const pb::Descriptor& type, std::string_view wire,
                            const std::string& path, int depth) {
  if (depth > kMaxDepth || wire.size() > std::numeric_limits<int>::max()) return absl::OkStatus();
  pb::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(wire.data()),
                                 static_cast<int>(wire.size()));
  std::map<int, int> n_seen;
  while (const uint32_t tag = input.ReadTag()) {
    if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (!WireFormatLite::SkipField(&input, tag)) break;
      continue;
    }
    uint32_t n_bytes = 0;
    if (!input.ReadVarint32(&n_bytes)) break;
    const auto at = static_cast<size_t>(input.CurrentPosition());
    if (n_bytes > wire.size() - at) break;
    input.Skip(static_cast<int>(n_bytes));
    const pb::FieldDescriptor* field =
        type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    if (field == nullptr) continue;
    std::string place = path + field->name();
    if (field->is_repeated()) place += fmt::format("[{}]", n_seen[field->number()]++);
    const std::string_view bytes = wire.substr(at, n_bytes);
    if (field->type() == pb::FieldDescriptor::TYPE_STRING) {
      SC_RETURN_IF_ERROR(text::CheckUtf8(place, bytes));
    } else if (field->type() == pb::FieldDescriptor::TYPE_MESSAGE) {
      SC_RETURN_IF_ERROR(FindBrokenText(*field->message_type(), bytes, place + ".", depth + 1));
    }
  }
  return absl::OkStatus();
}

void Log(pb::LogLevel, const char*, int, const std::string& message) {
  using Clock = std::chrono::steady_clock;
  static std::atomic<Clock::rep> next{0};
  static std::atomic<uint64_t> n_left_out{0};
  const Clock::time_point now = Clock::now();
  Clock::rep due = next.load();
  const Clock::rep then = (now + std::chrono::seconds(1)).time_since_epoch().count();
  if (now.time_since_epoch().count() < due || !next.compare_exchange_strong(due, then)) {
    ++n_left_out;
    return;
  }
  spdlog::debug("protobuf: {} ({} lines left out before)", message, n_left_out.exchange(0));
}

}  // namespace

absl::Status WhyUnreadable(const pb::Descriptor& type, std::string_view wire) {
  SC_RETURN_IF_ERROR(FindBrokenText(type, wire, "", 0));
  return absl::InvalidArgumentError(fmt::format("the message is not a {}", type.full_name()));
}

void TameProtobufLog() {
  static const bool done = [] {
    pb::SetLogHandler(&Log);
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace stagecoach
