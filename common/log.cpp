#include "common/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"

namespace stagecoach {

absl::Status InitLog(const std::string& program, const std::string& level) {
  const spdlog::level::level_enum parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off") {
    return absl::InvalidArgumentError(absl::StrCat(
        "log level \"", level, "\" is not one of trace, debug, info, warning, error, off"));
  }
  auto logger = spdlog::stderr_color_mt(program);
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%L%$ %n: %v");
  logger->set_level(parsed);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

}  // namespace stagecoach
