// Validators of flags, with error messages for people.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <concepts>
#include <cstddef>
#include <string>

namespace stagecoach {

// "'1.5' is not a whole number", "99999999999 is too large" for T. Which negative numbers are wrong
// is said by the other checks.
template <std::integral T>
CLI::Validator WholeNumber() {
  return CLI::Validator(
      [](const std::string& text) {
        const std::string digits = text.starts_with('-') ? text.substr(1) : text;
        if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) {
          return fmt::format("'{}' is not a whole number", text);
        }
        T value{};
        return digits != text || CLI::detail::lexical_cast(text, value)
                   ? ""
                   : fmt::format("{} is too large", text);
      },
      "");
}

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
        if (!CLI::detail::lexical_cast(text, value)) {
          return fmt::format("'{}' is not a {}", text,
                             std::integral<T> ? "whole number" : "number");
        }
        return value >= least && value <= most
                   ? ""
                   : fmt::format("must be from {} to {}, not {}", least, most, text);
      },
      "");
}

// HOST:PORT, such as "[::1]:9000", "0.0.0.0:0", "localhost:9000".
inline CLI::Validator Address() {
  return CLI::Validator(
      [](const std::string& text) {
        const size_t colon = text.rfind(':');
        const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
        const bool digits = !port.empty() && port.size() <= 5 &&
                            port.find_first_not_of("0123456789") == std::string::npos;
        if (colon == 0 || !digits || std::stoul(port) > 65535) {
          return fmt::format("'{}' is not HOST:PORT (such as 127.0.0.1:9000)", text);
        }
        return std::string();
      },
      "");
}

// HOST:PORT or "off".
inline CLI::Validator AddressOrOff() {
  return CLI::Validator(
      [](const std::string& text) {
        std::string address = text;
        return text == "off" ? "" : Address()(address);
      },
      "");
}

// tcp://HOST:PORT or ipc://PATH. HOST and PORT may be "*".
inline CLI::Validator ZmqEndpoint() {
  return CLI::Validator(
      [](const std::string& text) {
        if (text.starts_with("ipc://") && text.size() > 6) return std::string();
        std::string address = text.starts_with("tcp://") ? text.substr(6) : "";
        if (address.ends_with(":*")) address.replace(address.size() - 1, 1, "0");
        return Address()(address).empty()
                   ? ""
                   : fmt::format("'{}' is not tcp://HOST:PORT (such as tcp://*:5556)", text);
      },
      "");
}

}  // namespace stagecoach
