// Numeric fields of protobuf messages by their names, for code that takes the names from a table.
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "common/check.h"

namespace stagecoach {

// REQUIRES: the message has a field `name`, a float or an int32 that is not repeated.
inline const google::protobuf::FieldDescriptor* FindNumberField(
    const google::protobuf::Message& message, const std::string& name) {
  using Field = google::protobuf::FieldDescriptor;
  const Field* const field = message.GetDescriptor()->FindFieldByName(name);
  SC_CHECK(field != nullptr && !field->is_repeated());
  SC_CHECK(field->cpp_type() == Field::CPPTYPE_FLOAT || field->cpp_type() == Field::CPPTYPE_INT32);
  return field;
}

// Of an optional field: whether it is set.
inline bool HasNumber(const google::protobuf::Message& message, const std::string& name) {
  return message.GetReflection()->HasField(message, FindNumberField(message, name));
}

// A double holds every value of both types.
inline double GetNumber(const google::protobuf::Message& message, const std::string& name) {
  const auto* const field = FindNumberField(message, name);
  const auto* const reflection = message.GetReflection();
  if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_INT32) {
    return reflection->GetInt32(message, field);
  }
  return static_cast<double>(reflection->GetFloat(message, field));
}

// REQUIRES: an int32 field's value is one.
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
