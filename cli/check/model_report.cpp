#include "cli/check/model_report.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <string_view>
#include <utility>

#include "cli/check/columns.h"
#include "common/size.h"

namespace stagecoach::check {
namespace {

namespace json = boost::json;

std::string_view PartName(Part part) {
  switch (part) {
    case Part::kModel:
      return "model";
    case Part::kConfig:
      return "config";
    case Part::kTensors:
      return "tensors";
    case Part::kTokenizer:
      return "tokenizer";
    case Part::kTemplate:
      return "template";
    case Part::kMemory:
      return "memory";
  }
  return "?";
}

std::string WithoutBreak(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::string Count(size_t n, std::string_view word) {
  return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s");
}

// "27.2 billion"
std::string LargeNumber(uint64_t n) {
  const double value = static_cast<double>(n);
  if (n >= 1'000'000'000) return fmt::format("{:.2f} billion", value / 1e9);
  if (n >= 1'000'000) return fmt::format("{:.1f} million", value / 1e6);
  return fmt::format("{}", n);
}

// "18, of which 15 see the last 512 tokens only"
std::string Layers(const ModelFacts& facts) {
  std::string text = fmt::format("{}", facts.n_layers());
  std::string_view lead = ", of which";
  if (facts.n_recurrent > 0) {
    text += fmt::format("{} {} are recurrent", lead, facts.n_recurrent);
    lead = " and";
  }
  if (facts.n_mlps > 0) {
    text += fmt::format("{} {} are MLPs only", lead, facts.n_mlps);
    lead = " and";
  }
  for (const WindowFacts& group : facts.windows) {
    if (group.window == 0) continue;
    text += fmt::format("{} {} see the {} {} tokens only", lead, group.n_layers,
                        group.window.is_chunk ? "chunk of" : "last", group.window.size);
    lead = " and";
  }
  return text;
}

// "bfloat16"; "Q4_K 72%, Q6_K 28%" if there are several.
std::string Encodings(const ModelFacts& facts) {
  if (facts.encodings.size() == 1) return facts.encodings.front().name;
  uint64_t all_bytes = 0;
  for (const EncodingFacts& encoding : facts.encodings) all_bytes += encoding.bytes;
  std::string text;
  for (const EncodingFacts& encoding : facts.encodings) {
    const double percent =
        100.0 * static_cast<double>(encoding.bytes) / static_cast<double>(all_bytes);
    if (!text.empty()) text += ", ";
    text += percent < 1 ? encoding.name + " under 1%"
                        : fmt::format("{} {:.0f}%", encoding.name, percent);
  }
  return text;
}

// "of the last token, normalized; the model generates no text"
std::string Pooling(const PoolingSpec& pooling) {
  return fmt::format("{}{}; the model generates no text",
                     pooling.mean ? "the mean of all tokens" : "of the last token",
                     pooling.normalize ? ", normalized" : "");
}

void AddFacts(const ModelFacts& facts, Columns& columns) {
  columns.Add("architecture", facts.architecture);
  columns.Add("layers", Layers(facts));
  columns.Add("parameters", LargeNumber(facts.n_parameters));
  columns.Add("dtype", Encodings(facts));
  columns.Add("context", fmt::format("{} tokens", facts.context_tokens));
  columns.Add(
      "KV cache",
      fmt::format("{} bytes per token in {}{}", facts.kv_bytes_per_token, DTypeName(facts.kv_dtype),
                  facts.state_bytes == 0
                      ? ""
                      : fmt::format(", and {} for the recurrent state of each sequence",
                                    FormatBytes(facts.state_bytes))));
  for (size_t i = 0; i < facts.stages.size(); ++i) {
    const StageFacts& stage = facts.stages[i];
    const std::string where = facts.stages.size() == 1
                                  ? ""
                                  : fmt::format("stage {}, layers {} to {}: ", i, stage.first_layer,
                                                stage.first_layer + stage.n_layers - 1);
    columns.Add(i == 0 ? "memory" : "",
                fmt::format("{}{} of weights, {} of KV cache at full context", where,
                            FormatBytes(stage.weights_bytes), FormatBytes(stage.kv_bytes)));
  }
}

void AddFindings(const std::vector<Finding>& findings, Columns& columns) {
  for (const Finding& finding : findings) columns.Add(PartName(finding.part), finding.text);
}

json::array ToJson(const std::vector<Finding>& findings) {
  json::array array;
  for (const Finding& finding : findings) {
    array.push_back(json::object{{"part", PartName(finding.part)}, {"text", finding.text}});
  }
  return array;
}

void AddJson(const ModelFacts& facts, json::object& object) {
  object["architecture"] = facts.architecture;
  object["layers"] = facts.n_layers();
  json::array& windows = object["windows"].emplace_array();
  for (const WindowFacts& group : facts.windows) {
    windows.push_back(json::object{{"window", group.window.size},
                                   {"is_chunk", group.window.is_chunk},
                                   {"layers", group.n_layers}});
  }
  object["parameters"] = facts.n_parameters;
  object["dtype"] = facts.encodings.front().name;
  json::array& encodings = object["encodings"].emplace_array();
  for (const EncodingFacts& encoding : facts.encodings) {
    encodings.push_back(json::object{{"name", encoding.name}, {"bytes", encoding.bytes}});
  }
  object["recurrent_layers"] = facts.n_recurrent;
  object["state_bytes"] = facts.state_bytes;
  object["context_tokens"] = facts.context_tokens;
  object["vocab_size"] = facts.vocab_size;
  if (facts.pooling) {
    object["embeddings"] = {{"pooling", facts.pooling->mean ? "mean" : "last"},
                            {"normalized", facts.pooling->normalize}};
  } else {
    object["embeddings"] = nullptr;
  }
  object["kv_dtype"] = DTypeName(facts.kv_dtype);
  object["kv_bytes_per_token"] = facts.kv_bytes_per_token;
  json::array& stages = object["stages"].emplace_array();
  for (const StageFacts& stage : facts.stages) {
    stages.push_back(json::object{{"first_layer", stage.first_layer},
                                  {"layers", stage.n_layers},
                                  {"weights_bytes", stage.weights_bytes},
                                  {"kv_bytes_full_context", stage.kv_bytes}});
  }
}

}  // namespace

std::string ProblemsText(const ModelReport& report, size_t width) {
  Columns columns(width);
  AddFindings(report.problems, columns);
  return WithoutBreak(fmt::format("{} cannot be served: {}\n{}", report.model,
                                  Count(report.problems.size(), "problem"), columns.Text()));
}

std::string ToText(const ModelReport& report, size_t width) {
  std::string text;
  if (report.ok()) {
    text = fmt::format("{} can be served\n", report.model);
    Columns columns(width);
    if (report.facts) AddFacts(*report.facts, columns);
    if (report.tokenizer) {
      columns.Add("tokenizer",
                  fmt::format("{}, {} tokens", report.tokenizer->kind, report.tokenizer->n_tokens));
    }
    if (report.facts && report.facts->pooling) {
      columns.Add("embeddings", Pooling(*report.facts->pooling));
    } else {
      columns.Add(
          "chat template",
          report.has_template ? "yes" : "none: chats are refused unless --chat-template names one");
    }
    text += columns.Text();
  } else {
    text = ProblemsText(report, width) + '\n';
  }
  if (!report.notes.empty()) {
    Columns columns(width);
    AddFindings(report.notes, columns);
    text += fmt::format("{}\n{}", Count(report.notes.size(), "note"), columns.Text());
  }
  return WithoutBreak(std::move(text));
}

json::object ToJson(const ModelReport& report) {
  json::object object{{"model", report.model},
                      {"ok", report.ok()},
                      {"problems", ToJson(report.problems)},
                      {"notes", ToJson(report.notes)}};
  if (report.facts) AddJson(*report.facts, object);
  if (report.tokenizer) {
    object["tokenizer"] = {{"kind", report.tokenizer->kind},
                           {"tokens", report.tokenizer->n_tokens}};
  }
  object["chat_template"] = report.has_template;
  return object;
}

}  // namespace stagecoach::check
