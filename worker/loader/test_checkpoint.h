// For tests: writes .safetensors files and locates the committed ones.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace stagecoach::worker {

// The scripts next to the files generate them.
inline std::string TestData(std::string_view name) {
  return std::string(SC_LOADER_TESTDATA) + "/" + std::string(name);
}

// `header` is written unchanged.
inline std::string SafetensorsText(std::string_view header, std::string_view data) {
  const uint64_t header_bytes = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &header_bytes, 8);
  text.append(header);
  text.append(data);
  return text;
}

}  // namespace stagecoach::worker
