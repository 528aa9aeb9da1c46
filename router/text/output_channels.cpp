#include "router/text/output_channels.h"

namespace stagecoach::router {
namespace {

void AddCall(const ToolCallPiece& piece, v1::GenerateResponse* message) {
  const int n = message->tool_calls_size();
  v1::ToolCallDelta* delta = n > 0 ? message->mutable_tool_calls(n - 1) : nullptr;
  if (delta == nullptr || delta->index() != piece.index) {
    delta = message->add_tool_calls();
    delta->set_index(piece.index);
  }
  if (!piece.name.empty()) {
    delta->set_id(piece.id);
    delta->set_name(piece.name);
  }
  delta->mutable_arguments()->append(piece.arguments);
}

void AddEvent(JsonEvent event, v1::GenerateResponse* message) {
  const int n = message->json_events_size();
  if (n > 0 && message->json_events(n - 1).path() == event.path) {
    message->mutable_json_events(n - 1)->mutable_delta()->append(event.delta);
    return;
  }
  v1::JsonEvent& added = *message->add_json_events();
  added.set_path(std::move(event.path));
  added.set_delta(std::move(event.delta));
}

}  // namespace

OutputChannels::OutputChannels(const OutputFormat* format, const std::string& id_key) {
  if (format->harmony) {
    harmony_.emplace(HarmonyReader::Options{.separate_reasoning = format->separate_reasoning,
                                            .tools = format->tools,
                                            .begun = *format->harmony},
                     id_key);
  } else {
    if (format->separate_reasoning) {
      reasoning_.emplace(format->reasoning_place, format->reasoning_marks);
    }
    if (format->tools) tools_.emplace(*format->tools, id_key);
  }
  if (format->json_events) json_.emplace(&*format->json_events, format->json_source);
}

void OutputChannels::Push(std::string_view text, v1::GenerateResponse* message) {
  if (harmony_) {
    HarmonyReader::Output out;
    harmony_->Push(text, &out);
    return AddHarmony(out, message);
  }
  if (!reasoning_) return PushContent(text, /*at_end=*/false, message);
  ReasoningSplitter::Output out;
  reasoning_->Push(text, &out);
  message->mutable_reasoning()->append(out.reasoning);
  PushContent(out.content, /*at_end=*/false, message);
}

void OutputChannels::End(v1::GenerateResponse* message) {
  if (harmony_) {
    HarmonyReader::Output out;
    harmony_->End(&out);
    return AddHarmony(out, message);
  }
  ReasoningSplitter::Output out;
  if (reasoning_) reasoning_->End(&out);
  message->mutable_reasoning()->append(out.reasoning);
  PushContent(out.content, /*at_end=*/true, message);
}

void OutputChannels::PushContent(std::string_view text, bool at_end,
                                 v1::GenerateResponse* message) {
  if (!tools_) return AddContent(text, message);
  ToolCallParser::Output out;
  tools_->Push(text, &out);
  if (at_end) tools_->End(&out);
  Add(out, message);
}

void OutputChannels::AddHarmony(const HarmonyReader::Output& out, v1::GenerateResponse* message) {
  message->mutable_reasoning()->append(out.reasoning);
  Add(out.rest, message);
}

void OutputChannels::Add(const ToolCallParser::Output& out, v1::GenerateResponse* message) {
  AddContent(out.content, message);
  for (const ToolCallPiece& piece : out.calls) AddCall(piece, message);
}

void OutputChannels::AddContent(std::string_view text, v1::GenerateResponse* message) {
  if (!json_) {
    message->mutable_text()->append(text);
    return;
  }
  std::vector<JsonEvent> events;
  json_->Push(text, &events);
  for (JsonEvent& event : events) AddEvent(std::move(event), message);
}

}  // namespace stagecoach::router
