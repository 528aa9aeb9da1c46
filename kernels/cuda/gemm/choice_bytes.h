// Maps of plain structs as bytes, for processes of one build.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace stagecoach::kernels::cuda {

template <typename T>
void AppendBytes(const T& value, std::string* bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(T));
}

// Takes a value from the front of `bytes`. False if they are too short.
template <typename T>
bool TakeBytes(std::string_view* bytes, T* value) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (bytes->size() < sizeof(T)) return false;
  std::memcpy(value, bytes->data(), sizeof(T));
  bytes->remove_prefix(sizeof(T));
  return true;
}

// The number of entries, then keys and values.
template <typename Key, typename Value>
void AppendBytes(const std::map<Key, Value>& map, std::string* bytes) {
  AppendBytes(map.size(), bytes);
  for (const auto& [key, value] : map) {
    AppendBytes(key, bytes);
    AppendBytes(value, bytes);
  }
}
template <typename Key, typename Value>
bool TakeBytes(std::string_view* bytes, std::map<Key, Value>* map) {
  size_t n = 0;
  if (!TakeBytes(bytes, &n)) return false;
  for (; n > 0; --n) {
    std::pair<Key, Value> entry;
    if (!TakeBytes(bytes, &entry.first) || !TakeBytes(bytes, &entry.second)) return false;
    map->insert(entry);
  }
  return true;
}

}  // namespace stagecoach::kernels::cuda
