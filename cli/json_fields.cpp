#include "cli/json_fields.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <boost/json.hpp>
#include <string>
#include <type_traits>

#include "common/json_text.h"
#include "common/status.h"

namespace stagecoach::cli {
namespace {

namespace json = boost::json;
namespace pb = google::protobuf;
using pb::FieldDescriptor;

absl::Status Mismatch(const FieldDescriptor& field, std::string_view wanted,
                      const json::value& value) {
  return absl::InvalidArgumentError(
      fmt::format("{}: expected {}, got {}", field.name(), wanted, JsonText(value)));
}

// Converts the value to T; fails if it does not fit exactly.
template <typename T>
absl::Status Convert(const FieldDescriptor& field, const json::value& value, T& result) {
  if constexpr (std::is_same_v<T, bool>) {
    if (!value.is_bool()) return Mismatch(field, "true or false", value);
    result = value.get_bool();
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!value.is_string()) return Mismatch(field, "a string", value);
    result = std::string(value.get_string());
  } else if constexpr (std::is_floating_point_v<T>) {
    if (!value.is_number()) return Mismatch(field, "a number", value);
    result = value.to_number<T>();
  } else {
    json::error_code error;
    if (value.is_number()) result = value.to_number<T>(error);
    if (!value.is_number() || error.failed()) {
      return Mismatch(field, std::is_signed_v<T> ? "an integer" : "a whole number", value);
    }
  }
  return absl::OkStatus();
}

// Calls `use` with a default value of the field's C++ type.
template <typename Use>
absl::Status WithType(const FieldDescriptor& field, const Use& use) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return use(false);
    case FieldDescriptor::CPPTYPE_INT32:
      return use(int32_t{0});
    case FieldDescriptor::CPPTYPE_UINT32:
      return use(uint32_t{0});
    case FieldDescriptor::CPPTYPE_UINT64:
      return use(uint64_t{0});
    case FieldDescriptor::CPPTYPE_FLOAT:
      return use(0.0f);
    case FieldDescriptor::CPPTYPE_STRING:
      return use(std::string());
    default:
      return absl::NotFoundError(std::string(field.name()));
  }
}

struct Setter {
  pb::Message& message;
  const FieldDescriptor& field;
  const pb::Reflection& reflection = *message.GetReflection();

  void Set(bool value) const { reflection.SetBool(&message, &field, value); }
  void Set(int32_t value) const { reflection.SetInt32(&message, &field, value); }
  void Set(uint32_t value) const { reflection.SetUInt32(&message, &field, value); }
  void Set(uint64_t value) const { reflection.SetUInt64(&message, &field, value); }
  void Set(float value) const { reflection.SetFloat(&message, &field, value); }
  void Set(std::string value) const { reflection.SetString(&message, &field, std::move(value)); }
  void Add(bool value) const { reflection.AddBool(&message, &field, value); }
  void Add(int32_t value) const { reflection.AddInt32(&message, &field, value); }
  void Add(uint32_t value) const { reflection.AddUInt32(&message, &field, value); }
  void Add(uint64_t value) const { reflection.AddUInt64(&message, &field, value); }
  void Add(float value) const { reflection.AddFloat(&message, &field, value); }
  void Add(std::string value) const { reflection.AddString(&message, &field, std::move(value)); }
};

absl::Status SetMap(pb::Message& message, const FieldDescriptor& field, const json::value& value) {
  if (!value.is_object()) return Mismatch(field, "an object", value);
  const pb::Descriptor& entry_type = *field.message_type();
  for (const auto& [key, mapped] : value.get_object()) {
    pb::Message& entry = *message.GetReflection()->AddMessage(&message, &field);
    json::error_code error;
    const json::value key_number = json::parse(key, error);  // JSON keys are strings
    if (error.failed()) return Mismatch(field, "integers as keys", value);
    SC_RETURN_IF_ERROR(SetField(entry, entry_type.map_key()->name(), key_number));
    SC_RETURN_IF_ERROR(SetField(entry, entry_type.map_value()->name(), mapped));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SetField(pb::Message& message, std::string_view name, const json::value& value) {
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(std::string(name));
  if (field == nullptr) return absl::NotFoundError(std::string(name));
  if (field->is_map()) return SetMap(message, *field, value);

  const Setter setter{message, *field};
  return WithType(*field, [&](auto converted) -> absl::Status {
    if (!field->is_repeated()) {
      SC_RETURN_IF_ERROR(Convert(*field, value, converted));
      setter.Set(std::move(converted));
      return absl::OkStatus();
    }
    if (!value.is_array()) return Mismatch(*field, "a list", value);
    for (const json::value& element : value.get_array()) {
      SC_RETURN_IF_ERROR(Convert(*field, element, converted));
      setter.Add(converted);
    }
    return absl::OkStatus();
  });
}

}  // namespace stagecoach::cli
