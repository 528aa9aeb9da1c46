#include "router/text/value_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "common/check.h"
#include "router/text/argument_types.h"
#include "router/text/client_json.h"
#include "router/text/xml_call_reader.h"

namespace stagecoach::router {
namespace {

namespace json = boost::json;

constexpr int kMaxDepth = 16;  // of references, alternatives and nested values
constexpr size_t kMostRules = 4000;
constexpr JsonTypes kScalars = kJsonNumber | kJsonBool | kJsonNull;

// Keywords that allow every value, or are about other schemas.
constexpr std::string_view kFreeKeywords[] = {
    "title",    "description", "default",    "examples", "deprecated",
    "readOnly", "writeOnly",   "$comment",   "$schema",  "$id",
    "$defs",    "definitions", "x-guidance", "nullable", "strict"};
constexpr std::array<std::pair<JsonTypes, const char*>, 6> kTypeNames = {{{kJsonString, "string"},
                                                                          {kJsonNumber, "number"},
                                                                          {kJsonBool, "boolean"},
                                                                          {kJsonNull, "null"},
                                                                          {kJsonObject, "object"},
                                                                          {kJsonArray, "array"}}};

template <typename... Keywords>
std::optional<std::string_view> KeywordBeside(const json::object& schema, Keywords... known) {
  for (const auto& member : schema) {
    const std::string_view key = member.key();
    const bool is_known =
        ((key == known) || ...) || std::ranges::find(kFreeKeywords, key) != std::end(kFreeKeywords);
    if (!is_known) return key;
  }
  return std::nullopt;
}

// A name between slashes of a JSON pointer.
std::string PointerPart(std::string_view key) {
  std::string out;
  for (const char c : key) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

std::optional<uint64_t> Count(const json::object& schema, std::string_view keyword) {
  const json::value* const value = schema.if_contains(keyword);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  boost::system::error_code error;
  const auto count = value->to_number<uint64_t>(error);
  return error ? std::nullopt : std::optional(count);
}

std::string Repeats(uint64_t least, std::optional<uint64_t> most) {
  return most ? fmt::format("{{{},{}}}", least, *most) : fmt::format("{{{},}}", least);
}

std::string Joined(const std::vector<std::string>& parts, std::string_view between) {
  return fmt::format("{}", fmt::join(parts, between));
}

json::object Copy(const json::object& schema) {
  return json::object(schema, ClientJsonMemory(/*max_bytes=*/SIZE_MAX));
}

const json::object& Nothing() {
  static const auto& nothing = *new json::object;
  return nothing;
}

const json::value& Anything() {
  static const auto& anything = *new json::value(true);
  return anything;
}

struct Member {
  std::string key;
  const json::value* schema;
  bool is_required;
};

class RuleWriter {
 public:
  RuleWriter(ToolFamily family, const ToolSpec& tool, const text::Tokenizer& tokenizer)
      : family_(family),
        form_(IsTagged() ? &XmlFormOf(family) : nullptr),
        tool_(tool),
        strict_(tool.strict.value_or(true)),
        tokenizer_(tokenizer),
        root_(ReadSchema(tool.parameters)) {}

  absl::StatusOr<std::string> Write(const std::string& name);

 private:
  static json::value ReadSchema(const std::string& schema) {
    // The client's JSON was already read within the limit, so no limit here.
    return json::parse(schema.empty() ? R"({"properties": {}})" : schema,
                       ClientJsonMemory(/*max_bytes=*/SIZE_MAX));
  }
  bool IsTagged() const {
    return family_ != ToolFamily::kPythonic && family_ != ToolFamily::kGemma;
  }

  void AddRule(const std::string& name, const std::string& body) {
    rules_ += fmt::format("{}: {}\n", name, body);
    if (++n_rules_ == kMostRules) Refuse("#", "the schema has too many parts");
  }
  void Refuse(std::string_view place, std::string_view what);
  void RefuseKeyword(std::string_view place, std::optional<std::string_view> keyword);

  const json::value* Resolved(const json::value* schema) const;
  json::object WithDefinitions(json::object schema) const;
  std::string Json(const std::string& rule, json::object schema);
  // A schema for the values of some of the types that `schema` allows.
  json::object OfTypes(const json::object& schema, JsonTypes types) const;

  // Each adds rules whose names begin with `rule`, and returns what refers to them.
  void Members(const std::string& rule, const json::value* schema, const std::string& place,
               int depth);
  std::string MemberRule(const std::string& rule, const std::string& key, const json::value* schema,
                         const std::string& place, int depth);
  std::string Value(const std::string& rule, const json::value* schema, const std::string& place,
                    int depth);
  void Alternatives(const std::string& rule, const json::value* schema, const std::string& place,
                    int depth, std::vector<std::string>* out);
  std::string String(const json::object& schema, const std::string& place);
  std::string Array(const std::string& rule, const json::object& schema, const std::string& place,
                    int depth);
  std::string Text(std::string_view end);
  std::string AnyValue();
  std::string Spelled(std::string_view text) const { return SpelledLark(text, tokenizer_); }

  std::string KeyBegin() const;
  std::string KeyEnd(int depth) const;
  std::string ValueEnd() const;
  // Returns what may stand between two tags.
  std::string Break() const { return form_->may_join ? " \"\\n\"? " : " \"\\n\" "; }

  const ToolFamily family_;
  const XmlForm* const form_;  // null: no family with tags
  const ToolSpec& tool_;
  const bool strict_;
  const text::Tokenizer& tokenizer_;
  const json::value root_;
  std::string name_;
  std::string rules_;
  size_t n_rules_ = 0;
  bool has_text_ = false;
  bool has_any_ = false;
  bool is_free_ = false;  // an alternative of the value being written is any text
  absl::Status status_;
};

void RuleWriter::Refuse(std::string_view place, std::string_view what) {
  if (!status_.ok() || (!strict_ && n_rules_ < kMostRules)) return;
  status_ = absl::InvalidArgumentError(
      fmt::format("{}.function.parameters: at {}: {}", tool_.place, place, what));
}

void RuleWriter::RefuseKeyword(std::string_view place, std::optional<std::string_view> keyword) {
  if (!keyword) return;
  Refuse(place, fmt::format("the keyword \"{}\" is not supported in the form in which this model "
                            "writes calls",
                            *keyword));
}

const json::value* RuleWriter::Resolved(const json::value* schema) const {
  for (int i = 0; i < kMaxDepth; ++i) {
    const json::object* const object = schema->if_object();
    const json::value* const reference = object == nullptr ? nullptr : object->if_contains("$ref");
    if (reference == nullptr || !reference->is_string()) break;
    const std::string_view pointer = reference->get_string();
    boost::system::error_code error;
    const json::value* const target =
        pointer.starts_with('#') ? root_.find_pointer(pointer.substr(1), error) : nullptr;
    if (target == nullptr) break;  // JSON's compiler reports it
    schema = target;
  }
  return schema;
}

json::object RuleWriter::WithDefinitions(json::object schema) const {
  for (const char* const key : {"$defs", "definitions"}) {
    const json::value* const definitions =
        root_.is_object() ? root_.get_object().if_contains(key) : nullptr;
    if (definitions != nullptr) schema[key] = *definitions;
  }
  return schema;
}

std::string RuleWriter::Json(const std::string& rule, json::object schema) {
  AddRule(rule, JsonLark(WithDefinitions(std::move(schema)), strict_));
  return rule;
}

json::object RuleWriter::OfTypes(const json::object& schema, JsonTypes types) const {
  json::object out = Copy(schema);
  // "number" would allow more than "integer" does.
  json::array names(out.storage());
  const json::value* const type = schema.if_contains("type");
  const auto is_integer = [](const json::value& name) { return name == json::value("integer"); };
  const bool integers =
      type != nullptr && (is_integer(*type) ||
                          (type->is_array() && std::ranges::any_of(type->get_array(), is_integer)));
  for (const auto& [bit, name] : kTypeNames) {
    if ((types & bit) == 0) continue;
    names.emplace_back(bit == kJsonNumber && integers ? "integer" : name);
  }
  out["type"] = std::move(names);
  if (const json::value* values = schema.if_contains("enum");
      values != nullptr && values->is_array()) {
    json::array left(out.storage());
    for (const json::value& value : values->get_array()) {
      const json::value alone = json::object{{"const", value}};
      if ((TypesOf(alone, alone) & types) != 0) left.push_back(value);
    }
    out["enum"] = std::move(left);
  }
  return out;
}

std::string RuleWriter::KeyBegin() const { return IsTagged() ? Spelled(form_->key_begin) : ""; }

std::string RuleWriter::KeyEnd(int depth) const {
  if (family_ == ToolFamily::kPythonic) return QuotedLark("=");
  if (family_ == ToolFamily::kGemma) return QuotedLark(":");
  SC_CHECK(depth == 0);
  std::string end = Spelled(form_->key_end);
  if (!form_->value_begin.empty()) end += Break() + Spelled(form_->value_begin);
  return form_->on_lines ? end + " \"\\n\"" : end;
}

std::string RuleWriter::ValueEnd() const {
  if (!IsTagged()) return "";
  return Spelled(fmt::format("{}{}", form_->on_lines ? "\n" : "", form_->value_end)) + Break();
}

// Any text, and `end` behind it.
std::string RuleWriter::Text(std::string_view end) {
  const std::optional<int32_t> id = tokenizer_.TokenId(end);
  const bool is_special = id && tokenizer_.IsSpecial(*id);
  const std::string rule = name_ + "_text";
  if (!std::exchange(has_text_, true)) {
    AddRule(is_special ? rule : fmt::format("{}[suffix={}]", rule, QuotedLark(end)), "/(?s:.*)/");
  }
  return is_special ? fmt::format("{} <[{}]>", rule, *id) : rule;
}

// Any value of Gemma's form.
std::string RuleWriter::AnyValue() {
  const std::string rule = name_ + "_any";
  if (std::exchange(has_any_, true)) return rule;
  const std::string scalar = Json(rule + "_scalar", OfTypes({}, kScalars));
  AddRule(rule, fmt::format(R"({0} {1} | {2} | "[" ({3} ("," {3})*)? "]" | )"
                            R"("{{" ({3}_m ("," {3}_m)*)? "}}")",
                            Spelled("<|\"|>"), Text("<|\"|>"), scalar, rule));
  AddRule(rule + "_m", fmt::format(R"({} ":" {})", kAnyKey, rule));
  return rule;
}

std::string RuleWriter::String(const json::object& schema, const std::string& place) {
  RefuseKeyword(place, KeywordBeside(schema, "type", "enum", "const", "minLength", "maxLength"));
  const bool is_gemma = family_ == ToolFamily::kGemma;
  const std::string quote = is_gemma ? Spelled("<|\"|>") + " " : "";
  const std::string end = is_gemma ? quote : ValueEnd();
  std::vector<std::string> texts;
  const json::value* const values = schema.if_contains("enum");
  const json::value* const value = schema.if_contains("const");
  if (values != nullptr && values->is_array()) {
    for (const json::value& one : values->get_array()) {
      if (one.is_string()) texts.push_back(QuotedLark(one.get_string()));
    }
  }
  if (value != nullptr && value->is_string()) texts = {QuotedLark(value->get_string())};
  if (!texts.empty()) return fmt::format("{}({}) {}", quote, Joined(texts, " | "), end);
  const uint64_t least = Count(schema, "minLength").value_or(0);
  const std::optional<uint64_t> most = Count(schema, "maxLength");
  if (least > 0 || most) {
    // Without what may begin the mark behind the text.
    return fmt::format("{}/[^<{}]{}/ {}", quote, is_gemma ? "" : "\\n", Repeats(least, most), end);
  }
  is_free_ = !is_gemma;
  if (is_gemma) return quote + Text("<|\"|>");
  return Text(form_->value_end) + Break();
}

std::string RuleWriter::Array(const std::string& rule, const json::object& schema,
                              const std::string& place, int depth) {
  RefuseKeyword(place, KeywordBeside(schema, "type", "items", "minItems", "maxItems"));
  const json::value* const items = schema.if_contains("items");
  const std::string item =
      items != nullptr ? Value(rule + "_i", items, place + "/items", depth + 1) : AnyValue();
  AddRule(rule + "_item", item);
  const uint64_t least = Count(schema, "minItems").value_or(0);
  const std::optional<uint64_t> most = Count(schema, "maxItems");
  if (most && *most == 0) return R"("[]")";
  const std::string more =
      fmt::format("{0}_item (\",\" {0}_item){1}", rule,
                  Repeats(least > 0 ? least - 1 : 0, most ? std::optional(*most - 1) : most));
  return least > 0 ? fmt::format("\"[\" {} \"]\"", more) : fmt::format("\"[\" ({})? \"]\"", more);
}

void RuleWriter::Alternatives(const std::string& rule, const json::value* schema,
                              const std::string& place, int depth, std::vector<std::string>* out) {
  schema = Resolved(schema);
  const bool is_gemma = family_ == ToolFamily::kGemma;
  const json::object* const object = schema->if_object();
  const json::object& given = object != nullptr ? *object : Nothing();
  const JsonTypes types = TypesOf(*schema, root_);
  if (depth > kMaxDepth || n_rules_ >= kMostRules) {
    Refuse(place, "the schema is nested too deeply");
  } else if (const json::value* const all = given.if_contains("allOf");
             all != nullptr && all->is_array() && all->get_array().size() == 1) {
    RefuseKeyword(place, KeywordBeside(given, "allOf"));
    return Alternatives(rule, &all->get_array().front(), place + "/allOf/0", depth + 1, out);
  }
  if (family_ == ToolFamily::kPythonic) {
    // JSON's spellings of all other values are Python's, too, or are read like them.
    const bool is_plain = !given.contains("enum") && !given.contains("const");
    if (types == kJsonBool && is_plain) return out->push_back(R"("True" | "False")");
    if (types == kJsonNull) return out->push_back(R"("None")");
    return out->push_back(Json(rule, Copy(given)));
  }
  for (const char* const key : {"anyOf", "oneOf"}) {
    const json::value* const list = given.if_contains(key);
    // Values of one JSON text need no alternatives here.
    if (list == nullptr || !list->is_array() || (!is_gemma && (types & kJsonString) == 0)) continue;
    RefuseKeyword(place, KeywordBeside(given, "type", key));
    JsonTypes seen = 0;
    for (size_t i = 0; i < list->get_array().size(); ++i) {
      const json::value& one = list->get_array()[i];
      const JsonTypes of_one = TypesOf(one, root_);
      if (std::string_view(key) == "oneOf" && (seen & of_one) != 0) RefuseKeyword(place, key);
      seen |= of_one;
      Alternatives(fmt::format("{}_{}", rule, i), &one, fmt::format("{}/{}/{}", place, key, i),
                   depth + 1, out);
    }
    return;
  }
  if (is_gemma && (types == kJsonAny || depth > kMaxDepth)) {
    RefuseKeyword(place, KeywordBeside(given));
    return out->push_back(AnyValue());
  }
  if ((types & kJsonString) != 0) out->push_back(String(given, place));
  const JsonTypes as_json = types & (is_gemma ? kScalars : kJsonAny & ~kJsonString);
  if (as_json != 0 && types != kJsonAny) {
    const bool is_part = (types & kJsonString) != 0 || is_gemma;
    out->push_back(Json(rule, is_part ? OfTypes(given, as_json) : Copy(given)));
    if (!is_gemma) out->back() += " " + ValueEnd();
  }
  if (!is_gemma) return;
  if ((types & kJsonObject) != 0) {
    Members(rule + "_o", schema, place, depth + 1);
    out->push_back(fmt::format("\"{{\" {}_o \"}}\"", rule));
  }
  if ((types & kJsonArray) != 0) out->push_back(Array(rule + "_a", given, place, depth));
}

std::string RuleWriter::Value(const std::string& rule, const json::value* schema,
                              const std::string& place, int depth) {
  std::vector<std::string> alternatives;
  is_free_ = false;
  Alternatives(rule, schema, place, depth, &alternatives);
  // Any text covers the other alternatives, too.
  if (is_free_) return Text(form_->value_end) + Break();
  return fmt::format("({})", Joined(alternatives, " | "));
}

std::string RuleWriter::MemberRule(const std::string& rule, const std::string& key,
                                   const json::value* schema, const std::string& place, int depth) {
  const std::string value = Value(rule + "_v", schema, place, depth);
  AddRule(rule, fmt::format("{} {} {} {}", KeyBegin(), key, KeyEnd(depth), value));
  return rule;
}

void RuleWriter::Members(const std::string& rule, const json::value* schema,
                         const std::string& place, int depth) {
  schema = Resolved(schema);
  const json::object& given = schema->is_object() ? schema->get_object() : Nothing();
  RefuseKeyword(place,
                KeywordBeside(given, "type", "properties", "required", "additionalProperties"));
  const json::value* const properties = given.if_contains("properties");
  const json::value* const required = given.if_contains("required");
  const json::value* const others = given.if_contains("additionalProperties");
  std::vector<Member> members;
  if (properties != nullptr && properties->is_object()) {
    for (const auto& member : properties->get_object()) {
      members.push_back({.key = member.key(), .schema = &member.value(), .is_required = false});
    }
  }
  if (required != nullptr && required->is_array()) {
    for (const json::value& name : required->get_array()) {
      if (!name.is_string()) continue;
      const std::string key(name.get_string());
      auto member = std::ranges::find(members, key, &Member::key);
      if (member == members.end()) {
        members.push_back({.key = key, .schema = others != nullptr ? others : &Anything()});
        member = std::prev(members.end());
      }
      member->is_required = true;
    }
  }
  if (family_ == ToolFamily::kGemma) std::ranges::sort(members, {}, &Member::key);
  const std::string comma =
      IsTagged() ? "" : QuotedLark(family_ == ToolFamily::kGemma ? "," : ", ");
  if (members.empty()) {
    const bool is_closed = (properties != nullptr && others == nullptr) ||
                           (others != nullptr && *others == json::value(false));
    if (is_closed) return AddRule(rule, "\"\"");
    const std::string member =
        MemberRule(rule + "_m", std::string(kAnyKey), others != nullptr ? others : &Anything(),
                   place + "/additionalProperties", depth);
    return AddRule(rule,
                   IsTagged() ? member + "*" : fmt::format("({0} ({1} {0})*)?", member, comma));
  }
  for (size_t i = 0; i < members.size(); ++i) {
    MemberRule(fmt::format("{}_{}", rule, i), QuotedLark(members[i].key), members[i].schema,
               fmt::format("{}/properties/{}", place, PointerPart(members[i].key)), depth);
  }
  if (IsTagged()) {
    std::vector<std::string> parts;
    parts.reserve(members.size());
    for (size_t i = 0; i < members.size(); ++i) {
      parts.push_back(fmt::format("{}_{}{}", rule, i, members[i].is_required ? "" : "?"));
    }
    return AddRule(rule, Joined(parts, " "));
  }
  // RULE_first_I: from member I on, if none has come; RULE_more_I: if one has.
  const size_t n = members.size();
  for (size_t i = 0; i < n; ++i) {
    const std::string more = i + 1 < n ? fmt::format(" {}_more_{}", rule, i + 1) : "";
    const bool is_required = members[i].is_required;
    const std::string otherwise = is_required ? ""
                                  : i + 1 < n ? fmt::format(" | {}_first_{}", rule, i + 1)
                                              : " | \"\"";
    AddRule(fmt::format("{}_first_{}", rule, i),
            fmt::format("{}_{}{}{}", rule, i, more, otherwise));
    if (i == 0) continue;
    AddRule(fmt::format("{}_more_{}", rule, i),
            fmt::format("({} {}_{}){}{}", comma, rule, i, is_required ? "" : "?", more));
  }
  AddRule(rule, rule + "_first_0");
}

absl::StatusOr<std::string> RuleWriter::Write(const std::string& name) {
  name_ = name;
  Members(name, &root_, "#", 0);
  if (!status_.ok()) return status_;
  return rules_;
}

}  // namespace

std::string QuotedLark(std::string_view text) {
  return json::serialize(json::string(text.data(), text.size()));
}

std::string SpelledLark(std::string_view text, const text::Tokenizer& tokenizer) {
  std::vector<std::string> parts;
  size_t begin = 0;  // of text that is in no part yet
  const auto add_text = [&](size_t end) {
    if (end > begin) parts.push_back(QuotedLark(text.substr(begin, end - begin)));
  };
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '<' && text[at] != '[') continue;
    const size_t end = text.find(text[at] == '<' ? '>' : ']', at);
    if (end == std::string_view::npos) break;
    const std::optional<int32_t> id = tokenizer.TokenId(text.substr(at, end + 1 - at));
    if (!id || !tokenizer.IsSpecial(*id)) continue;
    add_text(at);
    parts.push_back(fmt::format("<[{}]>", *id));
    begin = end + 1;
    at = end;
  }
  add_text(text.size());
  return Joined(parts, " ");
}

std::string JsonLark(json::object schema, bool strict) {
  schema["x-guidance"] = {{"item_separator", ", "},
                          {"key_separator", ": "},
                          {"whitespace_flexible", false},
                          {"lenient", !strict}};
  return "%json " + json::serialize(schema);
}

absl::StatusOr<std::string> ArgumentRules(ToolFamily family, const ToolSpec& tool,
                                          const std::string& name,
                                          const text::Tokenizer& tokenizer) {
  return RuleWriter(family, tool, tokenizer).Write(name);
}

}  // namespace stagecoach::router
