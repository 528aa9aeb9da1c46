#include "cli/chat_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/text_format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "cli/command_tree.h"
#include "cli/sampling_flags.h"
#include "cli/suggest.h"

namespace stagecoach::cli {
namespace {

using google::protobuf::FieldDescriptor;

constexpr char kChoices[] = "n";  // a conversation goes on with one answer

// Flags, each bound to a field of `sampling`.
struct Parameters {
  explicit Parameters(v1::SamplingParams& sampling) { AddSamplingFlags(app, sampling); }

  std::vector<const CLI::Option*> All() const {
    std::vector<const CLI::Option*> options = OptionsOf(std::as_const(app));
    std::erase_if(options, [](const CLI::Option* one) { return KeyOf(*one) == kChoices; });
    return options;
  }

  CLI::App app;
};

const FieldDescriptor* FieldOf(std::string key) {
  std::replace(key.begin(), key.end(), '-', '_');
  return v1::SamplingParams::descriptor()->FindFieldByName(key);
}

void Clear(v1::SamplingParams& sampling, const std::string& key) {
  if (const FieldDescriptor* field = FieldOf(key)) {
    v1::SamplingParams::GetReflection()->ClearField(&sampling, field);
  }
}

// Empty: the server's default holds.
std::string ValueOf(const v1::SamplingParams& sampling, const std::string& key) {
  const FieldDescriptor* const field = FieldOf(key);
  const auto* const reflection = v1::SamplingParams::GetReflection();
  if (field == nullptr) return "";
  std::vector<std::string> texts;
  std::string text;
  const int n = field->is_repeated() ? reflection->FieldSize(sampling, field)
                                     : (reflection->HasField(sampling, field) ? 1 : 0);
  for (int i = 0; i < n; ++i) {
    google::protobuf::TextFormat::PrintFieldValueToString(sampling, field,
                                                          field->is_repeated() ? i : -1, &text);
    texts.push_back(text);
  }
  return fmt::format("{}", fmt::join(texts, " "));
}

}  // namespace

absl::Status ChangeSetting(const std::string& name_and_value, v1::SamplingParams& sampling) {
  const size_t space = std::min(name_and_value.find(' '), name_and_value.size());
  std::string key = name_and_value.substr(0, space);
  std::replace(key.begin(), key.end(), '_', '-');
  const size_t begin =
      std::min(name_and_value.find_first_not_of(' ', space), name_and_value.size());
  const std::string value = name_and_value.substr(begin);

  v1::SamplingParams changed = sampling;
  Parameters parameters(changed);
  std::vector<std::string> names;
  for (const CLI::Option* option : parameters.All()) names.push_back(KeyOf(*option));
  const auto found = std::find(names.begin(), names.end(), key);
  if (found == names.end()) {
    const std::string nearest = Nearest(key, names);
    return absl::InvalidArgumentError(fmt::format(
        "there is no parameter {}{}", key,
        nearest.empty() ? "; /set lists all" : fmt::format("; did you mean {}?", nearest)));
  }
  Clear(changed, key);
  const bool is_presence = IsPresence(*FindOption(parameters.app, key));
  if (is_presence && !value.empty() && value != "on" && value != "off") {
    return absl::InvalidArgumentError(fmt::format("{} is on or off", key));
  }
  std::vector<std::string> arguments;
  if (is_presence && value == "on") arguments = {"--" + key};
  if (!is_presence && !value.empty()) arguments = {fmt::format("--{}={}", key, value)};
  try {
    parameters.app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  sampling = std::move(changed);
  return absl::OkStatus();
}

std::string SettingsText(const v1::SamplingParams& sampling) {
  v1::SamplingParams unused;
  const Parameters parameters(unused);
  std::string text;
  for (const CLI::Option* option : parameters.All()) {
    const std::string key = KeyOf(*option);
    const std::string value = ValueOf(sampling, key);
    if (!text.empty()) text += '\n';
    text += fmt::format("{:<22}{}", key, value.empty() ? option->get_description() : value);
  }
  return text;
}

}  // namespace stagecoach::cli
