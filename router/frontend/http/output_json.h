// What is read out of an answer beside its text, as OpenAI's API and its relatives spell it.
#pragma once

#include <boost/json.hpp>
#include <vector>

#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router::http {

// Adds deltas behind those that wait already: one for each call.
void MergeToolCalls(const google::protobuf::RepeatedPtrField<v1::ToolCallDelta>& deltas,
                    std::vector<v1::ToolCallDelta>& calls);

// [{"id", "type": "function", "function": {"name", "arguments"}}]; `as_deltas`: with each call's
// index, and in its first delta alone with id, type and name.
boost::json::array ToolCallsJson(const std::vector<v1::ToolCallDelta>& calls, bool as_deltas);

// Adds [{"path", "delta"}].
void AddJsonEvents(const google::protobuf::RepeatedPtrField<v1::JsonEvent>& events,
                   boost::json::array& to);

}  // namespace stagecoach::router::http
