#include "common/signal_log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace stagecoach {
namespace {

// Set before handlers run.
std::atomic<bool> is_json = false;
std::array<char, 64> program_name{};

// A text of bounded length. The C library's formatting functions may not run in a handler.
class SignalLine {
 public:
  void Add(std::string_view text) {
    const size_t n = std::min(text.size(), text_.size() - size_);
    std::memcpy(text_.data() + size_, text.data(), n);
    size_ += n;
  }
  void AddNumber(uint64_t value, size_t n_digits) {
    std::array<char, 20> digits{};
    for (size_t i = n_digits; i > 0; value /= 10) digits[--i] = static_cast<char>('0' + value % 10);
    Add({digits.data(), n_digits});
  }
  // As the inside of a JSON string.
  void AddEscaped(std::string_view text) {
    constexpr std::string_view kHex = "0123456789abcdef";
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte >= 0x20) {
        if (c == '"' || c == '\\') Add("\\");
        Add({&c, 1});
      } else {
        Add("\\u00");
        Add(kHex.substr(byte >> 4, 1));
        Add(kHex.substr(byte & 15, 1));
      }
    }
  }
  void AddTime() {
    const auto now =
        std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
    const auto day = std::chrono::floor<std::chrono::days>(now);
    const std::chrono::year_month_day date(day);
    const std::chrono::hh_mm_ss time(now - day);
    AddNumber(static_cast<uint64_t>(static_cast<int>(date.year())), 4);
    Add("-");
    AddNumber(static_cast<unsigned>(date.month()), 2);
    Add("-");
    AddNumber(static_cast<unsigned>(date.day()), 2);
    Add("T");
    AddNumber(static_cast<uint64_t>(time.hours().count()), 2);
    Add(":");
    AddNumber(static_cast<uint64_t>(time.minutes().count()), 2);
    Add(":");
    AddNumber(static_cast<uint64_t>(time.seconds().count()), 2);
    Add(".");
    AddNumber(static_cast<uint64_t>(time.subseconds().count()), 3);
    Add("Z");
  }
  void Write(int most_ms) const {
    pollfd ready{STDERR_FILENO, POLLOUT, 0};
    if (poll(&ready, 1, most_ms) != 1) return;
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text_.data(), size_);
  }

 private:
  std::array<char, 8 << 10> text_{};
  size_t size_ = 0;
};

}  // namespace

void LogFromSignal(SignalLogLevel level, std::string_view what, std::string_view path,
                   std::string_view after, int most_ms) {
  const bool ends = level == SignalLogLevel::kCritical;
  SignalLine line;
  if (is_json) {
    line.Add(R"({"time":")");
    line.AddTime();
    line.Add(R"(","level":")");
    line.Add(ends ? "critical" : "info");
    line.Add(R"(","program":")");
    line.AddEscaped(program_name.data());
    line.Add(R"(","message":")");
    for (const std::string_view part : {what, path, after}) line.AddEscaped(part);
    line.Add("\"}\n");
  } else {
    if (ends) line.Add("error: ");
    for (const std::string_view part : {what, path, after, std::string_view("\n")}) line.Add(part);
  }
  line.Write(most_ms);
}

void SetSignalLogFormat(bool json, std::string_view program) {
  program_name.fill('\0');
  program.copy(program_name.data(), program_name.size() - 1);
  is_json = json;
}

}  // namespace stagecoach
