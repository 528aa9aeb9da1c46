// Shared by this folder's tests: their data, and checkpoint folders made on the spot.
#pragma once

#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "common/temp_dir.h"
#include "common/text/token_stream.h"
#include "common/text/tokenizer.h"

namespace stagecoach::text {

inline std::string TestData(std::string_view name) {
  return std::string(SC_TEXT_TESTDATA) + "/" + std::string(name);
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

// The Python library's results for a tokenizer of the test data.
inline boost::json::value Reference(std::string_view name) {
  return boost::json::parse(ReadFile(TestData(name) + "/reference.json"));
}

inline std::vector<int32_t> Ids(const boost::json::value& value) {
  return boost::json::value_to<std::vector<int32_t>>(value);
}

inline std::string Text(const boost::json::value& value) { return std::string(value.as_string()); }

inline std::string Stream(const std::shared_ptr<const Tokenizer>& tokenizer,
                          std::span<const int32_t> ids, bool skip_special_tokens) {
  TokenStream stream(tokenizer, skip_special_tokens);
  std::string out;
  for (int32_t id : ids) out += stream.Push(id);
  return out + stream.Flush();
}

}  // namespace stagecoach::text
