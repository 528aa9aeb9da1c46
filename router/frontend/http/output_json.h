// Tool calls and JSON events in the format of OpenAI's API and related servers.
#pragma once

#include <boost/json.hpp>
#include <vector>

#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router::http {

// Adds deltas to the waiting ones: merges them into one per tool call.
void MergeToolCalls(const google::protobuf::RepeatedPtrField<v1::ToolCallDelta>& deltas,
                    std::vector<v1::ToolCallDelta>& calls);

// [{"id", "type": "function", "function": {"name", "arguments"}}]. `as_deltas`: adds each call's
// index; id, type and name appear only in its first delta.
boost::json::array ToolCallsJson(const std::vector<v1::ToolCallDelta>& calls, bool as_deltas);

// Adds [{"path", "delta"}].
void AddJsonEvents(const google::protobuf::RepeatedPtrField<v1::JsonEvent>& events,
                   boost::json::array& to);

}  // namespace stagecoach::router::http
