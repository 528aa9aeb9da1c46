// Validators of numeric flags, with error messages for people.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

namespace stagecoach {

// "must be more than 0, not -3"
inline CLI::Validator MoreThanZero() {
  return CLI::Validator(
      [](const std::string& text) {
        double value = 0;
        if (!CLI::detail::lexical_cast(text, value))
          return fmt::format("'{}' is not a number", text);
        return value > 0 ? "" : fmt::format("must be more than 0, not {}", text);
      },
      "");
}

// "must be 0 or more, not -3"
inline CLI::Validator ZeroOrMore() {
  return CLI::Validator(
      [](const std::string& text) {
        double value = 0;
        if (!CLI::detail::lexical_cast(text, value))
          return fmt::format("'{}' is not a number", text);
        return value >= 0 ? "" : fmt::format("must be 0 or more, not {}", text);
      },
      "");
}

// "must be from 1 to 256, not 0"
template <typename T>
CLI::Validator Between(T least, T most) {
  return CLI::Validator(
      [least, most](const std::string& text) {
        T value{};
        if (!CLI::detail::lexical_cast(text, value))
          return fmt::format("'{}' is not a number", text);
        return value >= least && value <= most
                   ? ""
                   : fmt::format("must be from {} to {}, not {}", least, most, text);
      },
      "");
}

}  // namespace stagecoach
