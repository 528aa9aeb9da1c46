// Declares flags on a command-line parser. The same declaration writes the values as arguments
// again, so the launcher passes flags on to the programs that it starts without a list of its own.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/flags/checks.h"

namespace stagecoach {

// What a flag fills: a variable, or a field of a message.
template <typename T>
struct FlagValue {
  // Implicit, so that a variable can be passed as it is.
  FlagValue(T& variable)  // NOLINT(google-explicit-constructor)
      : get([&variable] { return variable; }),
        set([&variable](const T& value) { variable = value; }) {}
  FlagValue(std::function<T()> getter, std::function<void(const T&)> setter)
      : get(std::move(getter)), set(std::move(setter)) {}

  std::function<T()> get;
  std::function<void(const T&)> set;
};

// The field with these accessors, such as Field(config, &Config::n, &Config::set_n).
template <typename Message, typename T>
FlagValue<std::remove_cvref_t<T>> Field(Message& message, T (Message::*get)() const,
                                        void (Message::*set)(T)) {
  using Value = std::remove_cvref_t<T>;
  return {[&message, get] { return Value((message.*get)()); },
          [&message, set](const Value& value) { (message.*set)(value); }};
}

// Every method declares one flag and binds it to a value. The value at the declaration is the
// default. `app` must outlive the table, and the values must outlive both.
class FlagTable {
 public:
  explicit FlagTable(CLI::App& app) : app_(app) {}

  CLI::Option* Add(const std::string& name, std::vector<std::string>& values,
                   const std::string& help);  // the flag can be given several times
  CLI::Option* Add(const std::string& name, std::vector<uint32_t>& values,
                   const std::string& help);  // "1,2,3"
  template <typename T>
  CLI::Option* Add(const std::string& name, FlagValue<T> value, const std::string& help) {
    const auto text = [get = value.get] { return fmt::format("{}", get()); };
    Remember([name, text] { return Args{name, text()}; });
    CLI::Option* const option =
        app_.add_option_function<T>(name, value.set, help)->default_function(text);
    if constexpr (std::integral<T>) option->check(WholeNumber<T>());
    return option;
  }
  template <typename T>
    requires std::integral<T> || std::floating_point<T> || std::same_as<T, std::string>
  CLI::Option* Add(const std::string& name, T& value, const std::string& help) {
    return Add(name, FlagValue<T>(value), help);
  }

  // A size such as "512MiB".
  CLI::Option* AddSize(const std::string& name, FlagValue<uint64_t> bytes, const std::string& help);
  // Whole seconds.
  CLI::Option* AddSeconds(const std::string& name, std::chrono::seconds& value,
                          const std::string& help);
  // Seconds with decimals.
  CLI::Option* AddSeconds(const std::string& name, std::chrono::milliseconds& value,
                          const std::string& help);
  // "on" or "off".
  CLI::Option* AddSwitch(const std::string& name, bool& is_on, const std::string& help);
  // Without a value: its presence means true. The default must be false.
  CLI::Option* AddPresence(const std::string& name, bool& is_given, const std::string& help);

  template <typename T>
  struct Choice {
    const char* word;
    T meaning;
  };
  // One of several words, each of which stands for a value. `choices` must live as long as `app`.
  template <typename T, size_t N>
  CLI::Option* AddChoice(const std::string& name, FlagValue<std::type_identity_t<T>> value,
                         const Choice<T> (&choices)[N], const std::string& help) {
    const auto word = [&choices, get = value.get]() -> std::string {
      for (const Choice<T>& choice : choices) {
        if (choice.meaning == get()) return choice.word;
      }
      return "";
    };
    Remember([name, word] { return Args{name, word()}; });
    std::vector<std::string> words;
    words.reserve(N);
    for (const Choice<T>& choice : choices) words.emplace_back(choice.word);
    return app_
        .add_option_function<std::string>(
            name,
            [&choices, set = value.set](const std::string& text) {
              for (const Choice<T>& choice : choices) {
                if (choice.word == text) set(choice.meaning);
              }
            },
            help)
        ->check(CLI::IsMember(std::move(words)))
        ->default_str(word());
  }

  // The arguments that give the current values to a program that also gets ToEnvironment(). Flags
  // that still have their default are left out.
  std::vector<std::string> ToArgs() const;
  // "NAME=VALUE" for each flag that has a variable of its own (`envname`): everybody on the machine
  // can read a command line, and such a value may have a password. Empty: the default.
  std::vector<std::string> ToEnvironment() const;

 private:
  using Args = std::vector<std::string>;
  struct Flag {
    std::function<Args()> write;
    Args defaults;
  };

  void Remember(std::function<Args()> write);
  // The name of the flag's variable; empty: it has none.
  std::string VariableOf(const Args& args) const;

  CLI::App& app_;
  std::vector<Flag> flags_;
};

// The arguments, or the environment, that give `flags`. `declare` adds each flag of the struct to a
// table.
template <typename Flags>
std::vector<std::string> ArgsOf(const Flags& flags, void (*declare)(FlagTable&, Flags&),
                                std::vector<std::string> (FlagTable::*of)()
                                    const = &FlagTable::ToArgs) {
  CLI::App app;
  FlagTable table(app);
  Flags bound;
  declare(table, bound);
  bound = flags;
  return (table.*of)();
}
template <typename Flags>
std::vector<std::string> EnvironmentOf(const Flags& flags, void (*declare)(FlagTable&, Flags&)) {
  return ArgsOf(flags, declare, &FlagTable::ToEnvironment);
}

}  // namespace stagecoach
