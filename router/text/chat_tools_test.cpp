// Tests tools, reasoning and JSON events, from a chat request to the scheduler's input and the
// output settings.
#include <string>

#include "catch2/catch_test_macros.hpp"
#include "router/text/chat.h"
#include "router/text/chat_output.h"
#include "router/text/output_channels.h"
#include "router/text/request_builder.h"
#include "router/text/testing/test_model.h"
#include "router/text/tool_call_ids.h"

namespace stagecoach::router {
namespace {

constexpr const char* kTools =
    R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
        {"type": "function", "function": {"name": "g"}}])";

// Prints all of its input.
constexpr std::string_view kTemplate =
    "{% for t in tools or [] %}{{ t.function.name }};{% endfor %}"
    "{% for m in messages %}{{ m.role }}:{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.id }} {{ c.function.name }} "
    "{{ c.function.arguments.a }}{% endfor %}"
    "{% if m.tool_call_id %}={{ m.tool_call_id }} {{ m.name }}{% endif %}"
    "{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}|{% endfor %}";

ServedModel Model(std::string_view source = kTemplate) {
  ServedModel model = TestModel();
  model.chat_template = text::ChatTemplate::FromSource(source).value();
  model.max_model_len = 4096;
  return model;
}

v1::ChatRequest Request() {
  v1::ChatRequest request;
  v1::ChatMessage& message = *request.add_messages();
  message.set_role("user");
  message.set_content("Hi");
  return request;
}

v1::ChatRequest WithTools(v1::ToolChoice::Mode mode = v1::ToolChoice::AUTO) {
  v1::ChatRequest request = Request();
  request.set_tools(kTools);
  request.mutable_tool_choice()->set_mode(mode);
  return request;
}

std::string Refusal(const ServedModel& model, const v1::ChatRequest& request) {
  const auto input = BuildGeneration(model, request);
  REQUIRE(absl::IsInvalidArgument(input.status()));
  return std::string(input.status().message());
}

TEST_CASE("a template gets tool calls with arguments as objects, and tool results") {
  v1::ChatRequest request = Request();
  v1::ChatMessage& call = *request.add_messages();
  call.set_role("assistant");
  call.set_reasoning("hm");
  v1::ToolCall& one = *call.add_tool_calls();
  one.set_id("call_1");
  one.set_name("f");
  one.set_arguments(R"({"a": 1.0})");
  v1::ChatMessage& answer = *request.add_messages();
  answer.set_role("tool");
  answer.set_content("5");
  answer.set_tool_call_id("call_1");
  answer.set_name("f");
  const ServedModel model = Model();
  CHECK(RenderChat(model, request)->text ==
        "user:Hi|assistant:None<tool_call>call_1 f 1.0(hm)|tool:5=call_1 f|");
  CHECK(RenderChat(model, WithTools())->text == "f;g;user:Hi|");
  CHECK(RenderChat(model, WithTools(v1::ToolChoice::NONE))->text == "user:Hi|");

  v1::ChatRequest deferred = WithTools();
  deferred.set_tools(
      R"([{"type": "function", "function": {"name": "f"}},
          {"type": "function", "defer_loading": true, "function": {"name": "g"}}])");
  const absl::StatusOr<ChatPrompt> prompt = RenderChat(model, deferred);
  CHECK(prompt->text == "f;user:Hi|");
  CHECK(prompt->tools.size() == 2);

  const ServedModel mistral =
      Model("{% for m in messages %}[TOOL_CALLS]{{ m.tool_call_id }}{% endfor %}{{ tools }}");
  const std::string id = ToolCallIds(ToolFamily::kMistral).OfResult("call_1");
  CHECK(RenderChat(mistral, request)->text.find("[TOOL_CALLS]" + id) != std::string::npos);

  one.set_arguments("");
  CHECK(BuildGeneration(model, request).ok());
  one.set_arguments("{\"a\": \"\xFF");
  CHECK(Refusal(model, request) ==
        "messages[1].tool_calls[0].arguments: is not valid UTF-8 at byte 7");
  one.set_arguments("");
  one.set_name("");
  CHECK(Refusal(model, request).starts_with("messages[1].tool_calls[0].name: "));
}

TEST_CASE("Kimi's calls have the numbers of the conversation, whatever ids it came with") {
  const ServedModel model = Model(
      "{% for m in messages %}{% for call in m.tool_calls %}<|tool_calls_section_begin|>"
      "{{ call.id }} {% endfor %}{{ m.tool_call_id }}{% endfor %}{{ tools }}");
  v1::ChatRequest request = WithTools();
  for (const std::string id : {"functions.f:0", "call_1"}) {
    v1::ChatMessage& called = *request.add_messages();
    called.set_role("assistant");
    v1::ToolCall& call = *called.add_tool_calls();
    call.set_id(id);
    call.set_name("f");
    v1::ChatMessage& result = *request.add_messages();
    result.set_role("tool");
    result.set_tool_call_id(id);
  }
  const absl::StatusOr<ChatPrompt> prompt = RenderChat(model, request);
  INFO(prompt.status().ToString());
  REQUIRE(prompt.ok());
  CHECK(
      prompt->text.starts_with("<|tool_calls_section_begin|>functions.f:0 functions.f:0"
                               "<|tool_calls_section_begin|>functions.f:1 functions.f:1"));
  const OutputFormat format = ChatOutput(model, request, *prompt).value();
  OutputChannels channels(&format, "key");
  v1::GenerateResponse message;
  channels.Push(
      "<|tool_calls_section_begin|><|tool_call_begin|>functions.g:0"
      "<|tool_call_argument_begin|>{}<|tool_call_end|>",
      &message);
  REQUIRE(message.tool_calls_size() == 1);
  CHECK(message.tool_calls(0).id() == "functions.g:2");
}

TEST_CASE("a template gets reasoning once, in the form that it reads") {
  const std::string_view parts =
      "{% for m in messages %}{% if m.content is not string %}{% for part in m.content %}"
      "[THINK]{{ part.thinking }}[/THINK]{% endfor %}{% endif %}{% endfor %}";
  v1::ChatRequest request = Request();
  v1::ChatMessage& answer = *request.add_messages();
  answer.set_role("assistant");
  answer.set_reasoning("hm");
  CHECK(RenderChat(Model(parts), request)->text == "[THINK]hm[/THINK]");
  const std::string field = std::string(parts) + "{{ messages[1].reasoning_content }}";
  CHECK(RenderChat(Model(field), request)->text == "hm");
}

TEST_CASE("SmolLM3's template gets the tools under its own name for them") {
  const ServedModel model =
      Model("{% for tool in xml_tools or [] %}{{ tool.function.name }};{% endfor %}{{ x }}");
  v1::ChatRequest request = WithTools();
  CHECK(RenderChat(model, request)->text == "f;g;");
  request.set_chat_template_kwargs(" { } ");
  CHECK(RenderChat(model, request)->text == "f;g;");
  request.set_chat_template_kwargs(R"({"x": 1.0})");
  CHECK(RenderChat(model, request)->text == "f;g;1.0");
  request.set_chat_template_kwargs(R"({"xml_tools": [{"function": {"name": "h"}}]})");
  CHECK(RenderChat(model, request)->text == "h;");
  request.set_chat_template_kwargs(R"({"python_tools": []})");
  CHECK(RenderChat(model, request)->text.empty());
  CHECK(RenderChat(model, Request())->text.empty());
}

TEST_CASE("a template that takes contents apart gets an empty one for the null beside calls") {
  v1::ChatRequest request = Request();
  v1::ChatMessage& called = *request.add_messages();
  called.set_role("assistant");
  called.add_tool_calls()->set_name("f");
  const ServedModel model = Model(
      "{% for m in messages %}{{ m.content.lstrip() }}{{ m.tool_calls }}{% endfor %}{{ tools }}");
  const absl::StatusOr<ChatPrompt> prompt = RenderChat(model, request);
  INFO(prompt.status().ToString());
  REQUIRE(prompt.ok());
  CHECK(prompt->text.starts_with("Hi[{"));
}

TEST_CASE("tools are refused if the template does not render them") {
  const ServedModel model = Model("{% for m in messages %}{{ m.content }}{% endfor %}");
  CHECK(Refusal(model, WithTools()) ==
        "tools: the chat template of " + model.name + " does not support tools");
  CHECK(BuildGeneration(model, WithTools(v1::ToolChoice::NONE)).ok());
}

// The way public templates write a call: Qwen 3, Hermes and Qwen 2.5, Mistral 7B v0.3, Mistral
// Small 3, Llama 3.1, and Qwen 3 Coder and GLM 4.5, which iterate over the arguments' members.
constexpr const char* kQwen3 =
    "{{- '<tool_call>\n{\"name\": \"' }}{{- f.name }}{{- '\", \"arguments\": ' }}"
    "{%- if f.arguments is string %}{{- f.arguments }}{%- else %}{{- f.arguments | tojson }}"
    "{%- endif %}{{- '}\n</tool_call>' }}";
constexpr const char* kHermes =
    "{{- '<tool_call>\n{\"name\": \"' }}{{- f.name }}{{- '\", \"arguments\": ' }}"
    "{{- f.arguments | tojson }}{{- '}\n</tool_call>' }}";
constexpr const char* kMistral =
    "{{- '[TOOL_CALLS] [' }}{%- set out = f | tojson %}{{- out[:-1] }}"
    "{{- ', \"id\": \"' + c.id + '\"}]' }}";
constexpr const char* kMistralArgs =
    "{{- '[TOOL_CALLS]' + f.name + '[ARGS]' }}{%- if f.arguments is not string %}"
    "{{- f.arguments | tojson }}{%- else %}{{- f.arguments }}{%- endif %}";
constexpr const char* kLlama =
    "{{- '{\"name\": \"' + f.name + '\", ' }}{{- '\"parameters\": ' }}"
    "{{- f.arguments | tojson }}{{- '}' }}";
constexpr const char* kMembers =
    "{{- '<function=' + f.name + '>' }}{%- for name, value in f.arguments | items %}"
    "{{- '<' + name + '>' + value | string }}{%- endfor %}";
constexpr const char* kMembersByMethod =
    "{{- f.name }}{%- for name, value in f.arguments.items() %}{{- ' ' + name + '=' + "
    "(value | string) }}{%- endfor %}";

TEST_CASE("arguments that are not a JSON object are returned as the model wrote them") {
  const auto render = [](const char* call, const std::string& arguments) {
    const ServedModel model =
        Model(std::string("{%- for m in messages %}{%- for c in m.tool_calls or [] %}"
                          "{%- set f = c.function %}") +
              call + "{%- endfor %}{%- endfor %}");
    v1::ChatRequest request = Request();
    v1::ChatMessage& message = *request.add_messages();
    message.set_role("assistant");
    v1::ToolCall& one = *message.add_tool_calls();
    one.set_id("abc123def");
    one.set_name("f");
    one.set_arguments(arguments);
    const auto chat = RenderChat(model, request);
    INFO(chat.status().ToString());
    REQUIRE(chat.ok());
    return chat->text;
  };
  // Arguments cut off by max_tokens; JSON that is not an object; text that is not JSON.
  const std::string cut = R"({"a": "x)";
  CHECK(render(kQwen3, cut) ==
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x}\n</tool_call>");
  CHECK(render(kHermes, cut) ==
        "<tool_call>\n{\"name\": \"f\", \"arguments\": "
        "\"{\\\"a\\\": \\\"x\"}\n</tool_call>");
  CHECK(render(kMistral, cut) == R"([TOOL_CALLS] [{"name": "f", "arguments": "{\"a\": \"x")"
                                 R"(, "id": "abc123def"}])");
  CHECK(render(kMistralArgs, cut) == R"([TOOL_CALLS]f[ARGS]{"a": "x)");
  CHECK(render(kLlama, cut) == R"({"name": "f", "parameters": "{\"a\": \"x"})");
  CHECK(render(kMembers, cut) == R"(<function=f><arguments>{"a": "x)");
  CHECK(render(kMembersByMethod, cut) == R"(f arguments={"a": "x)");
  CHECK(render(kMistralArgs, "[1]") == "[TOOL_CALLS]f[ARGS][1]");
  CHECK(render(kMistralArgs, "call me") == "[TOOL_CALLS]f[ARGS]call me");
  const std::string deep(1000, '[');
  CHECK(render(kMistralArgs, deep) == "[TOOL_CALLS]f[ARGS]" + deep);
  // Objects and empty arguments work as usual.
  for (const char* call : {kQwen3, kHermes, kMistral, kMistralArgs, kLlama, kMembers}) {
    CHECK(render(call, R"({"a":2.5})").find("2.5") != std::string::npos);
    CHECK(render(call, " \n") == render(call, "{}"));
  }
}

TEST_CASE("tool_choice decides what the model may write") {
  const ServedModel model = Model();
  CHECK(model.chat_template->Mentions("<tool_call>"));
  const auto build = [&](const v1::ChatRequest& request) {
    auto input = BuildGeneration(model, request);
    INFO(input.status().ToString());
    REQUIRE(input.ok());
    return *std::move(input);
  };
  CHECK_FALSE(build(Request()).output.tools.has_value());
  const GenerationInput automatic = build(WithTools());
  REQUIRE(automatic.output.tools.has_value());
  CHECK(automatic.output.tools->family == ToolFamily::kHermes);
  CHECK(*automatic.output.tools->tools == ToolSchemaList{{"f", R"({"type":"object"})"}, {"g", ""}});
  CHECK_FALSE(automatic.sampling.slot.has_grammar());
  CHECK_FALSE(build(WithTools(v1::ToolChoice::NONE)).output.tools.has_value());

  v1::ChatRequest required = WithTools(v1::ToolChoice::REQUIRED);
  CHECK_FALSE(NeedsGrammar(WithTools()));
  CHECK(NeedsGrammar(required));
  CHECK(build(required).sampling.slot.grammar().kind() == v1::GRAMMAR_KIND_LARK);
  v1::ChatRequest named = WithTools(v1::ToolChoice::NAMED);
  named.mutable_tool_choice()->set_name("g");
  const std::string source = build(named).sampling.slot.grammar().source();
  CHECK(source.find("\\\"g\\\"") != std::string::npos);
  CHECK(source.find("\\\"f\\\"") == std::string::npos);
  named.set_parallel_tool_calls(false);
  CHECK_FALSE(build(named).output.tools->parallel);

  named.mutable_tool_choice()->set_name("h");
  CHECK(Refusal(model, named).starts_with("tool_choice.name: "));
  // A required tool_choice replaces another form.
  required.mutable_sampling()->mutable_grammar()->set_regex("a");
  CHECK(build(required).sampling.slot.grammar().kind() == v1::GRAMMAR_KIND_LARK);
  v1::ChatRequest either = WithTools();
  either.mutable_sampling()->mutable_grammar()->set_regex("a");
  CHECK(build(either).sampling.slot.grammar().kind() == v1::GRAMMAR_KIND_CALLS_OR_FORM);
  either.mutable_sampling()->mutable_grammar()->set_regex("(");
  CHECK(Refusal(model, either).starts_with("sampling.grammar.regex: "));
  either.mutable_sampling()->mutable_grammar()->set_lark("start: nothing");
  CHECK(Refusal(model, either).starts_with("sampling.grammar.lark: "));
  either.mutable_tool_choice()->set_mode(v1::ToolChoice::NONE);
  either.mutable_sampling()->mutable_grammar()->set_regex("a");
  CHECK(build(either).sampling.slot.grammar().kind() == v1::GRAMMAR_KIND_REGEX);
  required.clear_sampling();
  required.set_tools("[]");
  CHECK(Refusal(model, required).starts_with("tool_choice: "));
  required.set_tools(R"([{"type": "function", "function": {"name": "f",
      "parameters": {"type": "nonsense"}}}])");
  CHECK(Refusal(model, required) ==
        "tools[0].function.parameters: at #: the type \"nonsense\" does not exist");
  required.set_tools("nonsense");
  CHECK(Refusal(model, required).starts_with("tools: "));
  CHECK(Refusal(Model("{% for m in messages %}{{ m.content }}{% endfor %}"), WithTools())
            .starts_with("tools: the chat template"));
}

TEST_CASE("an unsupported keyword in a tool's schema is refused by its path, or reported as free") {
  const ServedModel model = Model();
  const auto tools = [](const std::string& strict, const std::string& schema) {
    return R"([{"type": "function", "function": {"name": "f"}},
               {"type": "function", "function": {"name": "g", )" +
           strict + R"("parameters": )" + schema + "}}]";
  };
  const struct {
    const char* schema;
    const char* words;
  } kCases[] = {
      {R"({"type": "object", "properties": {"a": {"type": "string", "not": {"const": "x"}}}})",
       "at #/properties/a: the keyword \"not\" is not supported"},
      {R"({"properties": {"not": {"items": {"uniqueItems": true}}}})",
       "at #/properties/not/items: the keyword \"uniqueItems\" is not supported"},
      {R"({"properties": {"a": {"type": "string", "format": "colour"}}})",
       "at #/properties/a: the format \"colour\" is not supported"},
      {R"({"properties": {"a": {"oneOf": [{"type": "string"}, {"const": "x"}]}}})",
       "at #/properties/a: oneOf is supported only if no value matches two of its schemas; use "
       "anyOf"},
      {R"({"minProperties": 2})",
       "minProperties cannot be enforced for members that are not listed"},
  };
  for (const auto& [schema, words] : kCases) {
    INFO(schema);
    v1::ChatRequest request = WithTools(v1::ToolChoice::REQUIRED);
    request.set_tools(tools("", schema));
    CHECK(
        Refusal(model, request).starts_with(std::string("tools[1].function.parameters: ") + words));
    request.set_tools(tools(R"("strict": true, )", schema));
    CHECK(
        Refusal(model, request).starts_with(std::string("tools[1].function.parameters: ") + words));
    request.set_tools(tools(R"("strict": false, )", schema));
    CHECK(BuildGeneration(model, request).ok());
    // If the model may answer without a call, only strict tools are enforced.
    request.mutable_tool_choice()->set_mode(v1::ToolChoice::AUTO);
    request.mutable_sampling()->mutable_grammar()->set_json_object(true);
    request.set_tools(tools("", schema));
    CHECK(BuildGeneration(model, request).ok());
    request.set_tools(tools(R"("strict": true, )", schema));
    CHECK(
        Refusal(model, request).starts_with(std::string("tools[1].function.parameters: ") + words));
  }
  // The client's own grammar gets the same messages.
  v1::ChatRequest form = Request();
  form.mutable_sampling()->mutable_grammar()->set_json_schema(kCases[0].schema);
  CHECK(Refusal(model, form) == std::string("sampling.grammar.json_schema: ") + kCases[0].words);
}

TEST_CASE("reasoning is separated for reasoning models") {
  ServedModel model = Model();
  CHECK_FALSE(BuildGeneration(model, Request())->output.separate_reasoning);
  model.has_reasoning = true;
  v1::ChatRequest request = Request();
  CHECK(BuildGeneration(model, request)->output.separate_reasoning);
  CHECK(BuildGeneration(model, request)->output.reasoning_place == ReasoningPlace::kBefore);
  request.set_separate_reasoning(false);
  CHECK_FALSE(BuildGeneration(model, request)->output.separate_reasoning);
  model.chat_template = text::ChatTemplate::FromSource("a<think>\n").value();
  request = Request();
  CHECK(BuildGeneration(model, request)->output.reasoning_place == ReasoningPlace::kInside);
  request.mutable_sampling()->mutable_grammar()->set_json_object(true);
  request.mutable_json_events();
  GenerationInput input = *BuildGeneration(model, request);
  CHECK(input.sampling.slot.grammar().begins_after() == "</think>");
  CHECK(input.output.json_source == JsonEventParser::Source::kConstrained);
  request.set_separate_reasoning(false);
  input = *BuildGeneration(model, request);
  CHECK(input.output.json_source == JsonEventParser::Source::kPrompted);
}

TEST_CASE("JSON events come from constrained JSON or from JSON that a prompt asks for") {
  const ServedModel model = Model();
  v1::ChatRequest request = Request();
  request.mutable_json_events()->add_paths("/answer");
  OutputFormat output = BuildGeneration(model, request)->output;
  REQUIRE(output.json_events.has_value());
  CHECK(output.json_source == JsonEventParser::Source::kPrompted);
  request.mutable_sampling()->mutable_grammar()->set_json_object(true);
  output = BuildGeneration(model, request)->output;
  CHECK(output.json_source == JsonEventParser::Source::kConstrained);
  request.mutable_json_events()->add_paths("answer");
  CHECK(Refusal(model, request).starts_with("json_events.paths[1]: "));

  v1::GenerateRequest plain;
  plain.set_text("Hello");
  plain.mutable_json_events();
  CHECK(BuildGeneration(model, plain)->output.json_events.has_value());
}

TEST_CASE("a tool's name has up to 128 characters") {
  const auto parse = [](size_t n) {
    return ParseTools(R"([{"type": "function", "function": {"name": ")" + std::string(n, 'a') +
                      R"("}}])");
  };
  CHECK(parse(128)->front().name.size() == 128);
  CHECK(parse(129).status().message() ==
        "tools[0].function.name: must have 1 to 128 letters, digits, '_', '-' or '.'");
}

}  // namespace
}  // namespace stagecoach::router
