// Access to numeric fields of protobuf messages by name, for code that takes the names from a
// table.
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "common/check.h"

namespace stagecoach {

// REQUIRES: the message has a float or int32 field `name` that is not repeated.
inline const google::protobuf::FieldDescriptor* FindNumberField(
    const google::protobuf::Message& message, const std::string& name) {
  using Field = google::protobuf::FieldDescriptor;
  const Field* const field = message.GetDescriptor()->FindFieldByName(name);
  SC_CHECK(field != nullptr && !field->is_repeated());
  SC_CHECK(field->cpp_type() == Field::CPPTYPE_FLOAT || field->cpp_type() == Field::CPPTYPE_INT32);
  return field;
}

// Whether an optional field is set.
inline bool HasNumber(const google::protobuf::Message& message, const std::string& name) {
  return message.GetReflection()->HasField(message, FindNumberField(message, name));
}

// A double represents every value of both types exactly.
inline double GetNumber(const google::protobuf::Message& message, const std::string& name) {
  const auto* const field = FindNumberField(message, name);
  const auto* const reflection = message.GetReflection();
  if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_INT32) {
    return reflection->GetInt32(message, field);
  }
  return static_cast<double>(reflection->GetFloat(message, field));
}

// REQUIRES: for an int32 field, `value` is an int32.
inline void SetNumber(google::protobuf::Message& message, const std::string& name, double value) {
  const auto* const field = FindNumberField(message, name);
  const auto* const reflection = message.GetReflection();
  if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_INT32) {
    reflection->SetInt32(&message, field, static_cast<int32_t>(value));
  } else {
    reflection->SetFloat(&message, field, static_cast<float>(value));
  }
}

}  // namespace stagecoach
