#include "tests/golden/golden_data.h"

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>

#include "common/check.h"
#include "common/model/config_reader.h"

namespace stagecoach {
namespace {

namespace json = boost::json;

template <typename T>
std::vector<T> Numbers(const json::object& object, const char* key) {
  std::vector<T> numbers;
  const json::value* value = object.if_contains(key);
  if (value == nullptr) return numbers;
  for (const json::value& item : value->as_array()) {
    if (!item.is_null()) numbers.push_back(item.to_number<T>());
  }
  return numbers;
}

Rounding RoundingOf(const json::object& file) {
  const json::value* const value = file.if_contains("bfloat16");
  if (value == nullptr) return {};
  return {value->at("logits_rms").to_number<double>(),
          value->at("prompt_logprobs_rms").to_number<double>()};
}

std::vector<GoldenCase> CasesOf(const json::object& file) {
  std::vector<GoldenCase> cases;
  for (const json::value& value : file.at("cases").as_array()) {
    const json::object& object = value.as_object();
    GoldenCase& golden = cases.emplace_back();
    golden.text = json::value_to<std::string>(object.at("text"));
    golden.prompt_ids = Numbers<int32_t>(object, "prompt_ids");
    golden.logits = Numbers<float>(object, "logits");
    golden.greedy_ids = Numbers<int32_t>(object, "greedy_ids");
    for (const json::value& pair : object.at("greedy_logprob_and_margin").as_array()) {
      golden.greedy_logprobs.push_back(pair.at(0).to_number<float>());
      golden.greedy_margins.push_back(pair.at(1).to_number<float>());
    }
    golden.prompt_logprobs = Numbers<float>(object, "prompt_logprobs");
  }
  return cases;
}

}  // namespace

std::vector<GoldenCase> ReadGoldenFile(const std::string& path) {
  const auto file = ReadJsonObject(path);
  SC_CHECK(file.ok());
  return CasesOf(**file);
}

std::vector<GoldenModel> FindGoldenModels(const std::string& dir) {
  namespace fs = std::filesystem;
  std::vector<GoldenModel> models;
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string path = (entry.path() / "golden.json").string();
    if (!fs::exists(path)) continue;
    const auto file = ReadJsonObject(path);
    SC_CHECK(file.ok());
    models.push_back({entry.path().filename().string(), entry.path().string(), CasesOf(**file),
                      RoundingOf(**file)});
  }
  std::sort(models.begin(), models.end(),
            [](const GoldenModel& a, const GoldenModel& b) { return a.name < b.name; });
  return models;
}

}  // namespace stagecoach
