// What this folder's tests share: their data and checkpoint folders made on the spot.
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

// What the Python library says of a tokenizer of the test data.
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

// A checkpoint folder that goes away with the test.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "sc_text_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }
  void Write(const std::string& name, std::string_view content) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << content;
  }

 private:
  std::string path_;
};

}  // namespace stagecoach::text
