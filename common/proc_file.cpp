#include "common/proc_file.h"

#include <fstream>

namespace stagecoach {

std::optional<uint64_t> ReadField(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  std::string word;
  uint64_t value = 0;
  for (std::string line; file >> word;) {
    if (word == name && file >> value) return value;
    file.clear();
    std::getline(file, line);
  }
  return std::nullopt;
}

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

std::optional<std::string> ReadFirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (std::getline(file, line)) return line;
  return std::nullopt;
}

}  // namespace stagecoach
