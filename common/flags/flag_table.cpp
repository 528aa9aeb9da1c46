#include "common/flags/flag_table.h"

#include <cmath>

#include "absl/status/statusor.h"
#include "common/size.h"

namespace stagecoach {

CLI::Option* FlagTable::Add(const std::string& name, std::vector<std::string>& values,
                            const std::string& help) {
  Remember([name, &values] {
    Args args;
    for (const std::string& value : values) args.insert(args.end(), {name, value});
    return args;
  });
  return app_.add_option(name, values, help)->allow_extra_args(false);
}

CLI::Option* FlagTable::Add(const std::string& name, std::vector<uint32_t>& values,
                            const std::string& help) {
  Remember([name, &values] { return Args{name, fmt::format("{}", fmt::join(values, ","))}; });
  return app_.add_option(name, values, help)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(WholeNumber<uint32_t>());
}

CLI::Option* FlagTable::AddSize(const std::string& name, FlagValue<uint64_t> bytes,
                                const std::string& help) {
  const CLI::Validator to_bytes(
      [](std::string& text) {
        const absl::StatusOr<uint64_t> parsed = ParseBytes(text);
        if (!parsed.ok()) return std::string(parsed.status().message());
        text = fmt::format("{}", *parsed);
        return std::string();
      },
      "");
  return Add(name, std::move(bytes), help)->transform(to_bytes)->type_name("SIZE");
}

CLI::Option* FlagTable::AddSeconds(const std::string& name, std::chrono::seconds& value,
                                   const std::string& help) {
  Remember([name, &value] { return Args{name, fmt::format("{}", value.count())}; });
  return app_
      .add_option_function<uint32_t>(
          name, [&value](uint32_t seconds) { value = std::chrono::seconds(seconds); }, help)
      ->check(WholeNumber<uint32_t>())
      ->type_name("S")
      ->default_str(fmt::format("{}", value.count()));
}

CLI::Option* FlagTable::AddSeconds(const std::string& name, std::chrono::milliseconds& value,
                                   const std::string& help) {
  const auto text = [&value] {
    return fmt::format("{}", std::chrono::duration<double>(value).count());
  };
  Remember([name, text] { return Args{name, text()}; });
  return app_
      .add_option_function<double>(
          name,
          [&value](double seconds) {
            value = std::chrono::milliseconds(std::llround(seconds * 1000));
          },
          help)
      ->type_name("S")
      ->default_str(text());
}

CLI::Option* FlagTable::AddSwitch(const std::string& name, bool& is_on, const std::string& help) {
  static constexpr Choice<bool> kChoices[] = {{"on", true}, {"off", false}};
  return AddChoice(name, is_on, kChoices, help)->type_name("on|off")->default_str("");
}

CLI::Option* FlagTable::AddPresence(const std::string& name, bool& is_given,
                                    const std::string& help) {
  Remember([name, &is_given] { return is_given ? Args{name} : Args{}; });
  return app_.add_flag(name, is_given, help);
}

std::string FlagTable::VariableOf(const Args& args) const {
  const CLI::Option* const option = args.empty() ? nullptr : app_.get_option_no_throw(args.front());
  return option == nullptr ? "" : option->get_envname();
}

std::vector<std::string> FlagTable::ToArgs() const {
  Args all;
  for (const Flag& flag : flags_) {
    const Args args = flag.write();
    if (args == flag.defaults || !VariableOf(args).empty()) continue;
    all.insert(all.end(), args.begin(), args.end());
  }
  return all;
}

std::vector<std::string> FlagTable::ToEnvironment() const {
  std::vector<std::string> all;
  for (const Flag& flag : flags_) {
    const Args args = flag.write();
    const std::string variable = VariableOf(args);
    if (variable.empty()) continue;
    all.push_back(fmt::format("{}={}", variable, args == flag.defaults ? "" : args.back()));
  }
  return all;
}

void FlagTable::Remember(std::function<Args()> write) {
  Args defaults = write();
  flags_.push_back({std::move(write), std::move(defaults)});
}

}  // namespace stagecoach
