#include "common/log.h"

#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/json/serialize.hpp>
#include <chrono>
#include <ctime>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/log_writer.h"
#include "common/signal_log.h"

namespace stagecoach {
namespace {

thread_local const std::string* request_id = nullptr;

// Returns `text` as a JSON string. Bytes that are not UTF-8 pass through unchanged.
std::string Quoted(std::string_view text) {
  return boost::json::serialize(boost::json::string_view(text.data(), text.size()));
}

std::string_view View(spdlog::string_view_t text) { return {text.data(), text.size()}; }

class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const std::time_t seconds = std::chrono::system_clock::to_time_t(message.time);
    const auto ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(message.time.time_since_epoch())
            .count() %
        1000;
    std::tm utc{};
    gmtime_r(&seconds, &utc);
    char time[32];
    std::strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &utc);
    std::string line = fmt::format("{{\"time\":\"{}.{:03}Z\",\"level\":\"{}\",\"program\":", time,
                                   ms, View(spdlog::level::to_string_view(message.level)));
    line += Quoted(View(message.logger_name));
    if (request_id != nullptr) {
      line += ",\"request_id\":";
      line += Quoted(*request_id);
    }
    line += ",\"message\":";
    line += Quoted(View(message.payload));
    line += "}\n";
    out.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }
};

// Lines are formatted on the logging thread, which knows the request. The log writer's thread
// writes them.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    const std::string_view text(line.data(), line.size());
    if (!is_terminal_ || message.color_range_end <= message.color_range_start) {
      WriteStderr(std::string(text));
      return;
    }
    const size_t begin = message.color_range_start, end = message.color_range_end;
    WriteStderr(absl::StrCat(absl::string_view(text.data(), begin), Color(message.level),
                             absl::string_view(text.data() + begin, end - begin), "\033[m",
                             absl::string_view(text.data() + end, text.size() - end)));
  }
  void flush_() override {}  // a reader may be slow or absent, so nothing waits for it

 private:
  static const char* Color(spdlog::level::level_enum level) {
    if (level >= spdlog::level::err) return "\033[31m\033[1m";
    if (level == spdlog::level::warn) return "\033[33m\033[1m";
    return level == spdlog::level::info ? "\033[32m" : "\033[36m";
  }

  const bool is_terminal_ = isatty(STDERR_FILENO) == 1;
};

// Writes "req-17: ", or nothing outside a LogRequest.
class RequestFlag final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg&, const std::tm&, spdlog::memory_buf_t& out) override {
    if (request_id == nullptr) return;
    out.append(request_id->data(), request_id->data() + request_id->size());
    constexpr std::string_view kColon = ": ";
    out.append(kColon.data(), kColon.data() + kColon.size());
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override {
    return std::make_unique<RequestFlag>();
  }
};

// Formats a line outside the logger, for a message that its level must not hide.
std::string Line(spdlog::formatter& formatter, const std::string& program,
                 spdlog::level::level_enum level, std::string_view message) {
  spdlog::memory_buf_t line;
  formatter.format(spdlog::details::log_msg(program, level, {message.data(), message.size()}),
                   line);
  return std::string(line.data(), line.size());
}

std::string WithIndent(std::string_view message) {
  bool all_indented = true;
  for (size_t end = message.find('\n'); end != message.npos; end = message.find('\n', end + 1)) {
    all_indented = all_indented && message.substr(end + 1).starts_with(' ');
  }
  return all_indented ? std::string(message)
                      : absl::StrReplaceAll(absl::string_view(message.data(), message.size()),
                                            {{"\n", "\n  "}});
}

// The program's name if the format is JSON, else empty. Set by InitLog, before other threads run.
std::string& JsonProgram() {
  static auto* const name = new std::string;
  return *name;
}

}  // namespace

LogRequest::LogRequest(const std::string& id) { request_id = &id; }
LogRequest::~LogRequest() { request_id = nullptr; }

absl::Status InitLog(const std::string& program, const std::string& level,
                     const std::string& format) {
  const spdlog::level::level_enum parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off") {
    return absl::InvalidArgumentError(absl::StrCat(
        "log level \"", level, "\" is not one of trace, debug, info, warning, error, off"));
  }
  std::unique_ptr<spdlog::formatter> formatter;
  if (format == "json") {
    formatter = std::make_unique<JsonFormatter>();
  } else {
    auto pattern = std::make_unique<spdlog::pattern_formatter>();
    pattern->add_flag<RequestFlag>('*').set_pattern("%Y-%m-%d %H:%M:%S.%e %^%L%$ %n: %*%v");
    formatter = std::move(pattern);
  }
  SetLostStderrText([program, lost = std::shared_ptr(formatter->clone())](uint64_t n) {
    return Line(*lost, program, spdlog::level::warn,
                absl::StrCat(n, " log lines are lost because nobody read standard error"));
  });
  JsonProgram() = format == "json" ? program : "";
  SetSignalLogFormat(format == "json", program);
  auto logger = std::make_shared<spdlog::logger>(program, std::make_shared<StderrSink>());
  logger->set_formatter(std::move(formatter));
  logger->set_level(parsed);
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

void LogFatal(std::string_view message) {
  if (JsonProgram().empty()) {
    WriteStderr(absl::StrCat("error: ", WithIndent(message), "\n"));
  } else {
    JsonFormatter formatter;
    WriteStderr(Line(formatter, JsonProgram(), spdlog::level::critical, message));
  }
  FlushStderr();
}

}  // namespace stagecoach
